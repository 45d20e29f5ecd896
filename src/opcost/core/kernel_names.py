"""What the names of device work tell about it, as profilers and libraries write them."""

from __future__ import annotations

import re

_COPIES = ("Memcpy", "Memset", "Copy")
_COLLECTIVES = ("nccl", "rccl")
_OWN_COLLECTIVES = re.compile(
    r"(?:multimem|one_shot|two_shot)_\w*(?:reduce|gather)|cross_device_reduce|allreduce_fusion"
)
"""Of symmetric memory; of vLLM and SGLang; of flashinfer and TensorRT-LLM."""
_CROSSING = re.compile(r"(?:Memcpy|Copy)\s*(?:HtoD|DtoH|PtoP|HostToDevice|DeviceToHost|PeerToPeer)", re.IGNORECASE)


def is_collective(name: str) -> bool:
    """Whether it is of a library of collectives, or one that PyTorch and serving libraries have of their own."""
    return name[:4].lower() in _COLLECTIVES or _OWN_COLLECTIVES.search(name) is not None


def is_copy(name: str) -> bool:
    """Whether it moves or clears memory, and computes nothing."""
    return name.startswith(_COPIES)


def is_transfer(name: str) -> bool:
    """Whether it moves memory between a device and the host or another device."""
    return _CROSSING.match(name) is not None


_WHY = re.compile(r"\((?:graph|outside|unattributed)\) ")
_TENSILE = re.compile(r"(Cijk_[A-Za-z]+_[A-Za-z]+)_.*?_(MT\d+x\d+x\d+)")
_FUNCTION = re.compile(r"\w[<(]")
_LENGTH = re.compile(r"\d+")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TELLING = re.compile(
    r"\w+Functor\w*|\w+_kernel(?:_\w+)?|\w+Kernel\w*|\w+Ops|cutlass_\w+|\w*Function\w*|\w+(?:Fwd|Bwd)\w*"
)
_WRAPPERS = re.compile(r"(?:BinaryFunctor|[AB]?UnaryFunctor|gpu_kernel_impl\w*|_cuda_scatter_gather\w+)$")
_LAUNCHERS = ("Kernel", "Kernel2", "kernel", "device_kernel", "kentry", "CppNode", "globalKernel")
"""Names that say nothing: what they run stands in their template."""


def short(name: str) -> str:
    """What tells a kernel's long name from others: of its template what it computes, then its name without namespaces.

    A name that is no C++ function and none of Tensile's stays as it is.
    """
    why = match.group() if (match := _WHY.match(name)) else ""
    rest = name[len(why) :]
    if tensile := _TENSILE.match(rest):
        return f"{why}{tensile[1]} {tensile[2]}"
    if rest.startswith("_Z"):
        words = _mangled(rest)
    elif _FUNCTION.search(rest):
        words = _demangled(rest)
    else:
        return name
    if not words:
        return name
    own, *inside = words
    telling = next((word for word in inside if _TELLING.fullmatch(word) and not _WRAPPERS.match(word)), "")
    if telling and own in _LAUNCHERS:
        return f"{why}{telling}"
    return f"{why}{telling}{' ' * bool(telling)}{own}"


def _demangled(name: str) -> list[str]:
    """The function's own name, and the words of its template."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    within, begin = "", 0
    for place, letter in enumerate(name):
        if letter == " " and not within:
            begin = place + 1  # what it returns stands before it
        elif letter == "(" or (letter == "<" and within[-1:] != "("):
            own = _WORD.findall(name[begin:place])
            if not within and own and not name.startswith("std::", begin):
                return [own[-1], *_WORD.findall(name[place:] if letter == "<" else "")]
            within += letter
        elif letter == ")" or (letter == ">" and within[-1:] == "<"):
            within = within[:-1]
    return _WORD.findall(name)[-1:]


def _mangled(name: str) -> list[str]:
    """The words of a name as compilers write it, `_ZN2at6native3addE`, each after its length; without the namespaces."""
    words: list[str] = []
    own = place = 0
    while found := _LENGTH.search(name, place):
        length = int(found.group())
        word = name[found.end() : found.end() + length]
        # A number may be a value (`Li128E`), or stand before another: only what reads as a word is one.
        if not _WORD.fullmatch(word) or not 2 < length <= len(word):
            place = found.end()
            continue
        words.append(word)
        place = found.end() + length
        if not own and name[place : place + 1] in ("I", "E"):
            own = len(words)
    return words[max(own - 1, 0) :]
