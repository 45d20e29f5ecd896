"""The archive: which of its files hold the program, and how much of them is believed. Weights are never opened."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from opcost.core.checked import Bad, instance, short
from opcost.core.files import opened
from opcost.errors import SourceError

LARGEST_TEXT = 64 << 20
"""No program's description comes near this; the largest language models take a fifth of it."""
MOST_PARTS = 3_000_000
"""Numbers, texts and brackets of a description; each takes far more memory than its letters."""
MOST_MEMBERS = 200_000
_CHUNK = 1 << 20
_OLD = "serialized_exported_program.json"
"""What the description was called up to torch 2.7, when weights lay beside it in files of their own."""


class Archive(NamedTuple):
    """The texts of an archive that describe the program."""

    program: dict[str, Any]
    weights: dict[str, Any]
    """Where each weight and constant lies, which tells the ones that are the same; empty in old archives."""


def read_archive(path: Path) -> Archive:
    """What an archive says of its program."""
    try:
        with opened(path) as file, ZipFile(file) as archive:
            names = archive.namelist()
            _check(path, names)
            program = _json(archive, _program_name(path, names))
            weights: dict[str, Any] = {}
            for name in names:
                if name.endswith(
                    ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
                ):
                    weights |= instance(_json(archive, name).get("config"), dict)
    except Bad as exc:
        raise SourceError(f"{path} is not an exported program: {exc}") from exc
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as exc:
        raise SourceError(f"{path} is not an exported program: {exc}") from exc
    return Archive(program, weights)


def _check(path: Path, names: list[str]) -> None:
    if len(names) > MOST_MEMBERS:
        raise Bad(f"it holds {len(names)} files")
    if len(set(names)) != len(names):
        raise SourceError(f"{path} holds two files of the same name")
    if any("data/aotinductor/" in name for name in names):
        raise SourceError(
            f"{path} holds compiled code, which is not counted", hint="save the exported program with torch.export.save"
        )


def _program_name(path: Path, names: list[str]) -> str:
    found = [name for name in names if name.rpartition("/")[0].endswith("models") and name.endswith(".json")]
    found = found or [name for name in names if name.rpartition("/")[2] == _OLD]
    if not found:
        raise Bad("it holds no models/*.json")
    if len(found) > 1:
        listed = ", ".join(short(name) for name in found[:4])
        raise SourceError(
            f"{path} holds {len(found)} programs: {listed}", hint="save each with torch.export.save and count it alone"
        )
    return found[0]


def _json(archive: ZipFile, name: str) -> dict[str, Any]:
    """A member as JSON; how large it is, is found by reading, since a header may lie."""
    info = archive.getinfo(name)
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise Bad(f"{short(name)} is packed in a way that torch does not use")
    content = bytearray()
    if info.file_size <= LARGEST_TEXT:
        with archive.open(info) as member:
            while len(content) <= LARGEST_TEXT and (chunk := member.read(_CHUNK)):
                content += chunk
    if max(info.file_size, len(content)) > LARGEST_TEXT:
        raise Bad(f"{short(name)} has more than {LARGEST_TEXT >> 20} MiB")
    if sum(content.count(mark) for mark in (b"[", b"{", b",")) > MOST_PARTS:
        raise Bad(f"{short(name)} has more than {MOST_PARTS} parts")
    text = content.decode("utf-8")
    del content
    try:
        return instance(json.loads(text, parse_int=_integer), dict)
    except RecursionError as exc:
        raise Bad(f"{short(name)} is nested too deeply") from exc


def _integer(text: str) -> int:
    if len(text) > 40:
        raise Bad(f"a number has {len(text)} digits")
    return int(text)
