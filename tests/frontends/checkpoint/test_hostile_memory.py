"""Small files that declare large ones: refused or read within a hundred megabytes and a few seconds."""

from __future__ import annotations

import io
import struct
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from peak_memory import needs_peak, rises_by_less_than

import opcost

pytestmark = needs_peak


def safetensors(header: str) -> bytes:
    return struct.pack("<Q", len(header)) + header.encode()


def archive(description: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", b"\x80\x02" + description)
    return out.getvalue()


def entry(name: object, shape: str = "[0]") -> str:
    return f'"{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}'


CASES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a header of many tensors": ("m.safetensors", lambda: safetensors(f"{{{','.join(map(entry, range(99_000)))}}}")),
    "a header of more": ("m.safetensors", lambda: safetensors(f"{{{','.join(map(entry, range(400_000)))}}}")),
    "a shape of millions of axes": ("m.safetensors", lambda: safetensors(f"{{{entry('a', '[' + '0,' * 10_000_000 + '0]')}}}")),
    "lists in one another": ("m.pt", lambda: archive(b"]" * 490_000 + b"a" * 489_000 + b".")),
    "many dicts": ("m.pt", lambda: archive(b"(" + b"}" * 490_000 + b"l.")),
    "many objects": ("m.pt", lambda: archive(b"(ca\nb\nq\0" + b"h\0)\x81" * 160_000 + b"l.")),
    "an archive that unfolds": ("m.pt", lambda: archive(b"(" + b"]" * 200_000_000 + b"l.")),
    "many keys": (
        "m.gguf",
        lambda: b"GGUF" + struct.pack("<IQQ", 3, 0, 65_000) + (struct.pack("<Q", 1) + b"a" + struct.pack("<II", 4, 1)) * 65_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_small_file_does_not_fill_the_memory(tmp_path: Path, case: str) -> None:
    name, make = CASES[case]
    (tmp_path / name).write_bytes(make())
    began = time.process_time()
    with rises_by_less_than(100 << 20), suppress(opcost.OpcostError):
        opcost.scan(tmp_path / name)
    assert time.process_time() - began < 10
