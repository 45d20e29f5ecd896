"""GGUF: both versions, both byte orders, split files, every type; and files with false sizes."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path

import pytest
from checkpoint_making import gguf_bytes, write_gguf

import opcost
from opcost.errors import SourceError
from opcost.frontends.checkpoint.gguf import TYPES

KEYS = {"general.architecture": "llama", "llama.block_count": 2, "tokens": ["a", "bc"] * 50_000, "scores": [0.5, 1.0]}


@pytest.mark.parametrize(("version", "order"), [(2, "<"), (3, "<"), (3, ">")])
def test_versions_and_byte_orders_are_read_alike(tmp_path: Path, version: int, order: str) -> None:
    size = 3 * 512 // 256 * 144
    path = write_gguf(tmp_path / "m.gguf", KEYS, [("blk.0.q.weight", (3, 512), 12, size)], version=version, order=order)
    found = opcost.scan(path)
    (tensor,) = found.tensors
    assert (tensor.name, tensor.shape, tensor.dtype, tensor.params, tensor.bytes) == (
        "blk.0.q.weight",
        (3, 512),
        "Q4_K",
        1536,
        864,
    )
    assert found.totals.bits_per_param == 8 * 144 / 256 == 4.5
    assert found.details == {"version": str(version), "keys": "4", "architecture": "llama"}


@pytest.mark.parametrize("number", TYPES)
def test_every_type_has_its_blocks(tmp_path: Path, number: int) -> None:
    name, block, size = TYPES[number]
    path = write_gguf(tmp_path / "m.gguf", {}, [("w", (5, 2 * block), number, 10 * size)])
    (tensor,) = opcost.scan(path).tensors
    assert (tensor.dtype, tensor.params, tensor.bytes) == (name, 10 * block, 10 * size)


def test_the_table_of_types_is_the_official_one() -> None:
    gguf = pytest.importorskip("gguf")
    official = {kind.value: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: (block, size) for number, (_, block, size) in TYPES.items()}
    assert {number: ours[number] for number in ours if number in official} == {
        number: official[number] for number in ours if number in official
    }


def test_a_file_without_tensors_is_read(tmp_path: Path) -> None:
    found = opcost.scan(write_gguf(tmp_path / "vocab.gguf", KEYS, []))
    assert (found.totals.tensors, found.totals.params, found.details["keys"]) == (0, 0, "4")
    assert "0 tensors" in str(found)


@pytest.mark.parametrize("named", [1, 3])
def test_parts_are_one_checkpoint_whichever_is_named(tmp_path: Path, named: int) -> None:
    for part in range(3):
        keys = {"split.count": 3, "split.no": part, "split.tensors.count": 3}
        write_gguf(tmp_path / f"m-{part + 1:05}-of-00003.gguf", keys, [(f"blk.{part}.w", (8, 32), 8, 8 * 34)])
    found = opcost.scan(tmp_path / f"m-{named:05}-of-00003.gguf")
    assert (found.totals.params, found.totals.bytes, len(found.files)) == (3 * 8 * 32, 3 * 8 * 34, 3)
    assert opcost.scan(tmp_path).totals == found.totals
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(SourceError, match=r"1 of its 3 parts are missing, as m-00002-of-00003.gguf"):
        opcost.scan(tmp_path / f"m-{named:05}-of-00003.gguf")


def test_experts_and_a_tied_head_are_known_from_the_file_itself(tmp_path: Path) -> None:
    keys = {"general.architecture": "llama", "llama.expert_count": 8, "llama.expert_used_count": 2}
    shapes = {
        "token_embd.weight": (10, 32), "blk.0.ffn_gate_exps.weight": (8, 4, 32), "blk.0.attn_output.weight": (32, 32),
        "output_norm.weight": (32,),
    }  # fmt: skip
    listed = [(name, shape, 0, 4 * prod(shape)) for name, shape in shapes.items()]
    found = opcost.scan(write_gguf(tmp_path / "m.gguf", keys, listed))
    experts, others = 8 * 4 * 32, 10 * 32 + 32 * 32 + 32
    assert found.totals.params == experts + others
    assert found.totals.active_params == others + experts * 2 // 8
    assert "the head is token_embd.weight" in found.notes[0].text
    assert not opcost.scan(write_gguf(tmp_path / "e.gguf", keys, listed[:-1])).notes  # it has no head
    head = ("output.weight", (10, 32), 0, 4 * 320)
    assert not opcost.scan(write_gguf(tmp_path / "h.gguf", keys, [*listed, head])).notes


def changed(place: int, form: str, *values: int) -> bytes:
    head, size = gguf_bytes({"a": 1}, [("w", (2, 32), 2, 36)])
    data = bytearray(head.ljust(size, b"\0"))
    struct.pack_into(form, data, place, *values)
    return bytes(data)


_KEY = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
_TENSOR = 24 + 8 + 1 + 4 + 4  # behind the head and the one pair
HOSTILE = {
    "an old version": (changed(4, "<I", 1), "version 1"),
    "many tensors": (changed(8, "<Q", 1 << 60), "declares 1,152,921,504,606,846,976 tensors"),
    "many keys": (changed(16, "<Q", 1 << 60), "keys"),
    "a long key": (changed(24, "<Q", 1 << 60), "a name declares"),
    "a type of values that there is not": (changed(33, "<I", 77), "a value has the type 77"),
    "a long text": (changed(33, "<I", 8), "beyond the end|a name is said"),
    "many axes": (changed(_TENSOR + 9, "<I", 1 << 31), "axes"),
    "a gigantic extent": (changed(_TENSOR + 13, "<QQ", (1 << 63) - 32, (1 << 63) - 1), "are declared at"),
    "an extent beyond 63 bits": (changed(_TENSOR + 13, "<Q", (1 << 64) - 32), "has the shape"),
    "a row that is no number of blocks": (changed(_TENSOR + 13, "<Q", 33), "whose blocks have 32"),
    "an unknown type": (changed(_TENSOR + 29, "<I", 99), "unknown type 99"),
    "an offset beyond the file": (changed(_TENSOR + 33, "<Q", 1 << 40), "are declared at"),
    "an offset between": (changed(_TENSOR + 33, "<Q", 1), "are declared at"),
    "nothing behind the magic": (b"GGUF", "beyond the end"),
    "a list of lists": (_KEY + struct.pack("<IIQ", 9, 9, 1) + bytes(99), "a value has the type 9"),
    "a list of many texts": (_KEY + struct.pack("<IIQ", 9, 8, 1 << 50) + bytes(99), "does not fit"),
    "a text beyond the file": (_KEY + struct.pack("<IIQ", 9, 8, 3) + b"\xff" * 99, "beyond the end"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_clear_error(tmp_path: Path, case: str) -> None:
    content, message = HOSTILE[case]
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        opcost.scan(tmp_path / "m.gguf")
