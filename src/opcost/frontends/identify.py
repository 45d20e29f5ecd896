"""What a file is, in words, for the error that must say so. Nothing is executed, unpickled or unpacked."""

from pathlib import Path
from typing import NamedTuple

from opcost.core.files import head_of, opened, read_whole
from opcost.core.parsing import BadArchive, archive_in, parse
from opcost.errors import SourceError


class Identity(NamedTuple):
    """What a file is, and what its owner can do to have it counted."""

    what: str
    hint: str
    is_own: bool = False  # Whether opcost wrote it


_COUNT_THE_CODE = "count the code that builds the model: path/to/file.py:Net or package.module:factory"
_WEIGHTS_ONLY = f"it holds weights and no operators: `opcost scan` lists them; {_COUNT_THE_CODE}"
_NO_READER = "no installed front end reads it; `opcost doctor` lists the front ends"
_MEGENGINE = Identity("a MegEngine dump", "give the file the suffix .mge")
_PAGE = "the download went wrong: fetch the file itself"
_NEVER_OPENED = "which opcost never opens, because opening one runs its code"

LARGEST_JSON = 16 << 20  # Bytes of a JSON file that are looked through for what it may be

_PACKED_TRACE = "`opcost analyze` reads a trace that is packed so; unpack anything else first"
_BEGINNINGS = {
    (0, b"version https://git-lfs"): Identity("a Git LFS pointer, not the file itself", "run `git lfs pull`"),
    (0, b"\x89HDF\r\n"): Identity("an HDF5 file", _COUNT_THE_CODE),
    (0, b"GGUF"): Identity("a GGUF checkpoint", _WEIGHTS_ONLY),
    (0, b"\x93NUMPY"): Identity("a NumPy array", _COUNT_THE_CODE),
    **dict.fromkeys(((0, b"mgbtest0"), (0, b"MGBC"), (0, b"MGBS"), (8, b"mgv2")), _MEGENGINE),
    (4, b"ORTM"): Identity("a model in ONNX Runtime's own format (.ort)", "count the .onnx file from which it was made"),
    (4, b"TFL3"): Identity("a TensorFlow Lite model", _NO_READER),
    (0, b"\x7fELF"): Identity("a compiled program", _COUNT_THE_CODE),
    (0, b"\x1f\x8b"): Identity("a gzip archive", _PACKED_TRACE),
    (0, b"\x80"): Identity(f"a Python pickle, {_NEVER_OPENED}", _WEIGHTS_ONLY),
}  # fmt: skip
"""By the bytes at a place near the beginning."""
_MEMBERS = {
    "/code/": Identity("a TorchScript archive", _COUNT_THE_CODE),
    "exported_program.json": Identity("an exported PyTorch program", _NO_READER),
    "data.pkl": Identity(f"a PyTorch checkpoint: a pickle, {_NEVER_OPENED}", _WEIGHTS_ONLY),
    ".npy": Identity("NumPy arrays", _COUNT_THE_CODE),
}
"""By a part of the name of a member of an archive; the first that one has."""

_JSON_KEYS = {
    "nbformat": Identity("a Jupyter notebook", _COUNT_THE_CODE),
    "traceEvents": Identity("a profiler trace", "`opcost analyze` reads it: a trace is measured time, not a model"),
    "weight_map": Identity("the index of a sharded checkpoint", _WEIGHTS_ONLY),
    "nodes": Identity("a graph as JSON (MXNet's symbols look like this)", _NO_READER),
}

_OWN = {
    "opcost.report": ("a report of opcost", "`opcost count` prints it"),
    "opcost.profile": ("a profile of opcost", "`opcost analyze` shows it"),
    "opcost.answer": ("what `opcost analyze` found in a profile", "`opcost analyze` takes the profile itself"),
    "opcost.scan": ("what `opcost scan` found in a checkpoint", "`opcost scan` takes the checkpoint"),
    "opcost.baseline": ("a baseline of opcost", "`opcost check --baseline` takes it"),
    "opcost.calibration": ("a calibration of opcost", "`opcost predict --calibration` takes it"),
}
"""By the schema that the file names, without its version."""

_SUFFIXES = {
    ".onnx": Identity("an ONNX model", _NO_READER),
    ".pb": Identity("a protocol buffer", _NO_READER),
    ".py": Identity("Python code", ""),
    **dict.fromkeys((".yaml", ".yml"), Identity("a YAML file", _COUNT_THE_CODE)),
}


def identify(path: Path) -> Identity:
    """What the file at this path is, as far as its first bytes show."""
    if path.is_dir():
        return Identity("a directory", _COUNT_THE_CODE)
    head = head_of(path, 4096)
    for (offset, beginning), identity in _BEGINNINGS.items():
        if head[offset:].startswith(beginning):
            return identity
    if head.startswith(b"PK"):
        try:
            with opened(path) as file, archive_in(file) as archive:
                names = archive.namelist()
        except BadArchive:
            return Identity("a damaged zip archive", _PAGE)
        if path.suffix == ".pt2":
            names.append("exported_program.json")
        for part, identity in _MEMBERS.items():
            if any(part in name for name in names):
                return identity
        return Identity("a zip archive", "unpack it first")
    if head[8:9] == b"{" and not any(head[4:8]):
        return Identity("a safetensors checkpoint", _WEIGHTS_ONLY)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return Identity("an HTML page", _PAGE)
    if start.startswith((b"{", b"[")):
        return _identify_json(path)
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    if b"\0" in head:
        return Identity("a binary file of an unknown kind", _NO_READER)
    return Identity("a text file", _COUNT_THE_CODE)


def _identify_json(path: Path) -> Identity:
    try:
        content = parse(read_whole(path, LARGEST_JSON, "model").decode("utf-8-sig"))
    except SourceError:
        return Identity("a very large JSON file", "")
    except ValueError:
        return Identity("text that looks like JSON but cannot be parsed", "")
    keys = content if isinstance(content, dict) else {}
    if "model_type" in keys or "architectures" in keys:
        return Identity("a Hugging Face configuration", f"write hf:{path}")
    if (own := _OWN.get(str(keys.get("schema")).partition("/")[0])) is not None:
        return Identity(*own, is_own=True)
    for key, identity in _JSON_KEYS.items():
        if key in keys:
            return identity
    return Identity("a JSON file, but no report of opcost", "")
