"""What names say: of kernels and copies, of collectives, of exporters' scopes, of modules, and of many layers as one line."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_COPIES = ("Memcpy", "Memset", "Copy")
_COLLECTIVES = ("nccl", "rccl")
_OWN_COLLECTIVES = re.compile(
    r"(?:multimem|one_shot|two_shot)_\w*(?:reduce|gather)|cross_device_reduce|allreduce_fusion"
)
"""Of symmetric memory; of vLLM and SGLang; of flashinfer and TensorRT-LLM."""
_CROSSING = re.compile(r"(?:Memcpy|Copy)\s*(?:HtoD|DtoH|PtoP|HostToDevice|DeviceToHost|PeerToPeer)", re.IGNORECASE)


def is_collective(name: str) -> bool:
    """Whether it is of a library of collectives, or one of PyTorch's or a serving library's own."""
    return name[:4].lower() in _COLLECTIVES or _OWN_COLLECTIVES.search(name) is not None


def is_copy(name: str) -> bool:
    """Whether it moves or clears memory, and computes nothing."""
    return name.startswith(_COPIES)


def is_transfer(name: str) -> bool:
    """Whether it moves memory between a device and the host or another device."""
    return _CROSSING.match(name) is not None


def short_source(source: str) -> str:
    """What follows the last slash or colon of a source: `resnet50` of `timm:resnet50`, `Net` of `path/to/net.py:Net`."""
    bare = source.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return bare.partition(":")[2] or bare


EXPERT_WORDS = frozenset(("experts", "switch_mlp", "local_experts"))


def is_expert(name: str, shape: Sequence[int], experts: int) -> bool:
    """Whether a tensor is of the experts of a mixture with this number of them."""
    words = name.split(".")
    stacked = len(shape) == 3 and shape[0] == experts and "moe" in name
    return stacked or not EXPERT_WORDS.isdisjoint(words) or any(word.endswith("_exps") for word in words)


_STEP = re.compile(r"ProfilerStep#([0-9]{1,19})")


def step_number(name: str) -> int | None:
    """The number of a step, if this is how PyTorch's schedule marks one."""
    return int(match[1]) if (match := _STEP.fullmatch(name)) else None


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
"""Generic names: what they run is in their template."""


def short_kernel_name(name: str) -> str:
    """The distinctive part of a kernel's long name: from its template what it computes, then its name without namespaces.

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
            begin = place + 1  # the return type is before it
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
        # A number may be a value (`Li128E`), or precede another: only what reads as a word is one.
        if not _WORD.fullmatch(word) or not 2 < length <= len(word):
            place = found.end()
            continue
        words.append(word)
        place = found.end() + length
        if not own and name[place : place + 1] in ("I", "E"):
            own = len(words)
    return words[max(own - 1, 0) :]


# -- collectives, by the names that frameworks and libraries give them ------------------------------------------------

_KINDS = (
    ("allreduce", "all_reduce"), ("allgather", "all_gather"), ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"), ("broadcast", "broadcast"), ("sendrecv", "send_recv"), ("send", "send"),
    ("recv", "recv"), ("barrier", "barrier"), ("gather", "gather"), ("scatter", "scatter"), ("reduce", "reduce"),
)  # fmt: skip
"""Part of a name without underscores, and the collective; the first that fits."""
_ALGORITHM = re.compile(r"(?:^|_)((?:RING|TREE|COLLNET|NVLS)(?:_[A-Z]+)*?(?:_(?:LL128|LL|SIMPLE))?)(?=_|$|\()")


def collective_kind(name: str) -> str:
    """The type of a collective, such as `all_reduce`; empty where the name does not say."""
    bare = name.lower().replace("_", "")
    return next((kind for part, kind in _KINDS if part in bare), "")


MESSAGES = frozenset(("send", "recv", "send_recv"))
"""Types of collectives between two ranks, as the stages of a pipeline send them."""


_MESH = "mesh_"  # begins the description of a group that a DeviceMesh made; the name of the dimension follows
_UNNAMED = "mesh_default"  # the description of a group of all ranks that a DeviceMesh made, of whichever dimension


def mesh_axis(description: str) -> str:
    """The dimension of the mesh whose process group has this description; empty for a group of no DeviceMesh."""
    named = description.startswith(_MESH) and description != _UNNAMED
    return description.removeprefix(_MESH) if named else ""


def group_label(group: str, description: str) -> str:
    """What a process group is called: by the dimension of its mesh or its description, else by its name."""
    plain = "" if description in ("undefined", "default_pg", _UNNAMED) else description
    return mesh_axis(description) or plain or group


def members_text(ranks: Sequence[int]) -> str:
    """The ranks of a process group, mostly evenly apart: `0-7`, `0-56:8`, `0,3,4`."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 0
    if len(ranks) < 3 or step < 1 or list(ranks) != list(range(ranks[0], ranks[-1] + 1, step)):
        return ",".join(map(str, ranks))
    return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step > 1 else "")


def members_of(text: str) -> tuple[int, ...]:
    """The ranks that `members_text` wrote."""
    if not (found := re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?", text)):
        return tuple(map(int, filter(None, text.split(","))))
    return tuple(range(int(found[1]), int(found[2]) + 1, int(found[3] or 1)))


def algorithm_of(kernel: str) -> str:
    """The algorithm and the protocol in a kernel's name, such as `RING_LL`; newer kernels decide when they run."""
    found = _ALGORITHM.search(kernel)
    return found[1] if found else ""


def bus_factor(kind: str, ranks: int | None) -> float | None:
    """What the rate of the algorithm must be multiplied by for that of the busiest link, as nccl-tests define it."""
    if kind in ("broadcast", "reduce", "send", "recv", "send_recv"):
        return 1.0
    if not ranks or kind not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        return None
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks


# -- scopes ------------------------------------------------------------------------------------------------------------


def path_of_scopes(scopes: Sequence[str]) -> str:
    """The module in these scopes, each inside the one before: `layer1`, `layer1.0`, `conv1` is layer1.0.conv1.

    Exporters repeat the name of a list, or the whole path so far, in the names of its members.
    """
    path = ""
    for scope in scopes:
        if path and (scope == path or scope.startswith(f"{path}.")):
            path = scope
            continue
        parts = path.split(".")
        # A scope with dots repeats the end of the path: in stage2.0.branches.0, branches.0.0 is stage2.0.branches.0.0.
        ends = (".".join(parts[at:]) for at in range(len(parts)))
        end = next((end for end in ends if scope.startswith(f"{end}.")), "") if path else ""
        path = f"{path.removesuffix(end)}{scope}" if end else f"{path}.{scope}" if path else scope
    return path


# -- names of many layers as one line: `model.layers.{0..79}.mlp.*` ------------------------------------------------------

MANY_RUNS = 4  # runs of numbers that are written out; of more, the first and the last number and how many there are
_PLACE = "\0"  # the placeholder of a number; no displayed name has this letter
_BEGINS = re.compile(r"[0-9]{1,9}(?![0-9])")
_NUMBER = re.compile(r"(?<![^.])[0-9]{1,9}(?![^.])")


@dataclass(slots=True)
class NamePattern:
    """The names of one line: their words, and the numbers in each place."""

    words: tuple[str, ...]
    cut: bool  # something may follow after these words
    numbers: list[set[str]]
    rests: set[str] = field(default_factory=set)  # what followed; a single rest is written out

    def __str__(self) -> str:
        found = iter(self.numbers)
        words = [_numbers(map(int, next(found))) if word == _PLACE else word for word in self.words]
        if self.cut:
            words += [
                rest if len(self.rests) == 1 else "*" for rest in [*self.rests][:1] if rest or len(self.rests) > 1
            ]
        return ".".join(words)


def patterns_of(names: Sequence[str], depth: int | None) -> list[NamePattern]:
    """The pattern of each name; names of one line have the same object.

    A line reaches to the module of a tensor where no layer is numbered, else `depth` words beyond the number of the layer;
    further numbers are no words. With no depth it is the whole name.
    """
    known: dict[str, tuple[NamePattern, str]] = {}  # of each skeleton: its pattern, and the words after it
    lines: dict[tuple[str, ...], NamePattern] = {}
    found = []
    for name in names:
        name = name.replace(_PLACE, "\ufffd") if _PLACE in name else name  # noqa: PLW2901 - the name as it is displayed
        numbers = _NUMBER.findall(name)
        skeleton = _NUMBER.sub(_PLACE, name) if numbers else name
        if skeleton not in known:
            known[skeleton] = _cut(skeleton, depth, lines)
        pattern, rest = known[skeleton]
        for seen, number in zip(pattern.numbers, numbers, strict=False):
            seen.add(number)
        if len(pattern.rests) < 2:
            for number in numbers[len(pattern.numbers) :]:
                rest = rest.replace(_PLACE, number, 1)
            pattern.rests.add(rest)
        found.append(pattern)
    return found


def _cut(skeleton: str, depth: int | None, lines: dict[tuple[str, ...], NamePattern]) -> tuple[NamePattern, str]:
    words = skeleton.split(".")
    if depth is None:
        end = len(words)
    elif _PLACE not in words:
        end = max(len(words) - 1, 1)
    else:
        end, left = words.index(_PLACE) + 1, depth
        while end < len(words) and (left or words[end] == _PLACE):
            left -= words[end] != _PLACE
            end += 1
    kept = tuple(words[:end])
    if kept not in lines:
        lines[kept] = NamePattern(kept, depth is not None, [set() for _ in range(kept.count(_PLACE))])
    return lines[kept], ".".join(words[end:])


def natural_order(name: str) -> list[tuple[int, str]]:
    """The key that sorts `layers.2` before `layers.10`, and before `layers.{10..19}`."""
    return [
        (int(begin[0]), "") if (begin := _BEGINS.match(word)) is not None else (-1, word)
        for word in name.replace("{", "").split(".")
    ]


def _numbers(found: Iterable[int]) -> str:
    """`7`, `{0..79}`, `{0..3,8..11}`, and of many runs `{0..76: 20}`."""
    ordered = sorted(found)
    if len(ordered) == 1:
        return str(ordered[0])
    runs = runs_of(ordered)
    if len(runs) > MANY_RUNS:
        return f"{{{ordered[0]}..{ordered[-1]}: {len(ordered):,}}}"
    return f"{{{','.join(f'{a}..{b}' if b > a else str(a) for a, b in runs)}}}"


def runs_of(ordered: Iterable[int]) -> list[list[int]]:
    """The first and the last of each run of consecutive numbers."""
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


# -- patterns of paths

STAR = "a star matches any one name: 'layers.*'"


def matches(path: str, pattern: str) -> bool:
    """Whether a path ends so, or after a dot is so; a star matches a part of one name and never several."""
    names, wanted = path.split("."), pattern.removeprefix(".").split(".")
    fits = len(wanted) == len(names) if pattern.startswith(".") else len(wanted) <= len(names)
    return fits and all(map(fnmatchcase, names[-len(wanted) :], wanted))


def is_inside(path: str, module: str) -> bool:
    """Whether it is this module or one below it."""
    return path == module or path.startswith(f"{module}.")


def patterns_for(chosen: Sequence[str], every: Mapping[str, str]) -> tuple[str, ...]:
    """Patterns that match these paths and no others: `layers.*`, or `layers.[0-9]` and `layers.1[0-7]`.

    `every` has all paths, each with the first path of the same object.
    """
    meant = {every[path] for path in chosen}

    def exact(pattern: str) -> str | None:
        """The pattern, with a dot before it where longer paths end so too; None where it matches others."""
        for each in (pattern, f".{pattern}"):
            if all(first in meant for path, first in every.items() if matches(path, each)):
                return each
        return None

    found: dict[str, list[str]] = {}  # of the paths that differ in their last number alone
    for path in chosen:
        found.setdefault(_LAST_NUMBER.sub("*", path), []).append(path)
    patterns: list[str] = []
    for common, paths in found.items():
        whole = exact(common) if len(paths) > 1 else None
        if whole is not None:
            patterns.append(whole)
            continue
        tens: dict[str, list[int]] = {}  # numbers that differ in their last digit alone
        for number in (int(match[0]) for path in paths if (match := _LAST_NUMBER.search(path))):
            tens.setdefault(str(number)[:-1], []).append(number)
        for ten, numbers in tens.items():
            digits = "".join(f"{a % 10}-{b % 10}" if b > a else f"{a % 10}" for a, b in runs_of(sorted(numbers)))
            together = exact(common.replace("*", f"{ten}[{digits}]")) if len(numbers) > 1 else None
            single = (common.replace("*", str(number)) for number in numbers)
            patterns += [together] if together else (exact(path) or path for path in single)
        if not tens:  # a path without a number
            patterns += (exact(path) or path for path in paths)
    return tuple(patterns)


def starred(paths: Iterable[str]) -> list[str]:
    """The paths, with a star in place of each number, once each."""
    return list(dict.fromkeys(_NUMBERED.sub("*", path) for path in paths if path))


_NUMBERED = re.compile(r"(?<![^.])\d+(?![^.])")
_LAST_NUMBER = re.compile(r"(?<![^.])\d+(?=(?:\.[^.]*[^.\d][^.]*)*$)")
