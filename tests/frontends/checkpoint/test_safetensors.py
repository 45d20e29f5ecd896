"""safetensors: single files, shards by their index, folders; and files with false sizes."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from checkpoint_making import safetensors_header, write_safetensors, write_sharded

import opcost
from opcost.errors import SourceError, UnknownSource

LAYER = {"q.weight": ("BF16", (4, 6)), "q.bias": ("F32", (4,))}
PARAMS, BYTES = 4 * 6 + 4, 4 * 6 * 2 + 4 * 4


def test_a_file_is_recognised_by_its_header(tmp_path: Path) -> None:
    found = opcost.scan(write_safetensors(tmp_path / "m.safetensors", LAYER))
    assert (found.totals.params, found.totals.bytes, found.totals.tensors) == (PARAMS, BYTES, 2)
    assert found.format == "safetensors"
    weight, bias = found.tensors
    assert (weight.name, weight.shape, weight.dtype, weight.params, weight.bytes) == (
        "q.weight",
        (4, 6),
        "bfloat16",
        24,
        48,
    )
    assert weight.bits == 16
    assert bias.type == "float32"


def test_what_the_official_writer_writes_is_read_alike(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    official = pytest.importorskip("safetensors.numpy")
    arrays = {"a": numpy.zeros((3, 5), "float16"), "b": numpy.zeros((), "int64"), "c": numpy.zeros((0, 7), "uint8")}
    official.save_file(arrays, tmp_path / "m.safetensors", metadata={"format": "np", "data_offsets": "x"})
    found = {tensor.name: tensor for tensor in opcost.scan(tmp_path / "m.safetensors").tensors}
    assert {name: (each.shape, each.dtype, each.bytes) for name, each in found.items()} == {
        name: (array.shape, str(array.dtype), array.nbytes) for name, array in arrays.items()
    }


@pytest.mark.parametrize("missing", ["dtype", "shape", "data_offsets"])
def test_an_entry_must_be_whole(tmp_path: Path, missing: str) -> None:
    entry = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
    header = json.dumps({"a": {name: part for name, part in entry.items() if name != missing}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(SourceError, match="is not a safetensors file that can be read"):
        opcost.scan(path)


def test_metadata_may_use_the_words_of_entries(tmp_path: Path) -> None:
    entries = {
        "__metadata__": {"shape": "4x6", "dtype": "bf16"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    header = json.dumps(entries).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    assert opcost.scan(path).totals.params == 2


@pytest.mark.parametrize("how", ["index", "folder", "files"])
def test_shards_are_one_checkpoint(tmp_path: Path, how: str) -> None:
    index = write_sharded(tmp_path, [{f"layers.{n}.{name}": kind for name, kind in LAYER.items()} for n in range(3)])
    paths = {"index": [index], "folder": [tmp_path], "files": sorted(tmp_path.glob("*.safetensors"))}[how]
    found = opcost.scan(*paths)
    assert (found.totals.params, found.totals.bytes) == (3 * PARAMS, 3 * BYTES)
    assert len(found.files) == 3
    assert [group.name for group in found.by_layer()] == ["layers.{0..2}.q.*"]


def test_the_index_may_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", LAYER)
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in ("../m.safetensors", str(tmp_path / "m.safetensors"), "a\\b", "..", ""):
        index = inner / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"q.weight": name}}))
        with pytest.raises(SourceError, match="is not beside it"):
            opcost.scan(index)


def test_shards_that_are_missing_are_named(tmp_path: Path) -> None:
    index = write_sharded(tmp_path, [{f"{n}.w": ("F32", (2,))} for n in range(3)])
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(SourceError, match=r"of which 1 are not there: model-00002-of-00003.safetensors"):
        opcost.scan(index)


def test_tensors_that_an_index_promises_must_be_there(tmp_path: Path) -> None:
    index = write_sharded(tmp_path, [{"a": ("F32", (2,))}, {"b": ("F32", (2,))}])
    promised = json.loads(index.read_text())
    promised["weight_map"]["c"] = promised["weight_map"]["a"]
    index.write_text(json.dumps(promised))
    with pytest.raises(SourceError, match="do not hold: c"):
        opcost.scan(tmp_path)


def test_of_several_formats_in_a_folder_the_best_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", LAYER)
    write_safetensors(tmp_path / "consolidated.safetensors", {"other": ("F32", (99,))})
    (tmp_path / "pytorch_model.bin").write_bytes(b"not even looked at")
    (tmp_path / "training_args.bin").write_bytes(b"not even looked at")
    found = opcost.scan(tmp_path)
    assert found.totals.params == PARAMS
    assert [note.text for note in found.notes] == [
        "not read: consolidated.safetensors, pytorch_model.bin; name a file to scan it"
    ]


def test_the_parts_of_a_pipeline_are_under_their_folders(tmp_path: Path) -> None:
    for part in ("unet", "vae"):
        (tmp_path / part).mkdir()
        write_safetensors(tmp_path / part / "diffusion_pytorch_model.safetensors", LAYER)
    found = opcost.scan(tmp_path)
    assert {tensor.name for tensor in found.tensors} == {f"{part}.{name}" for part in ("unet", "vae") for name in LAYER}


def test_two_checkpoints_are_not_one(tmp_path: Path) -> None:
    one, two = (write_safetensors(tmp_path / f"{name}.safetensors", LAYER) for name in "ab")
    with pytest.raises(SourceError, match="not of one checkpoint"):
        opcost.scan(one, two)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownSource, match="holds no checkpoint"):
        opcost.scan(tmp_path)


def entry(shape: object, offsets: object, dtype: object = "F32") -> str:
    return json.dumps({"dtype": dtype, "shape": shape, "data_offsets": offsets})


HOSTILE = {
    "a length beyond the file": (struct.pack("<Q", 1 << 60) + b"{}", "header declares"),
    "a length of nothing": (struct.pack("<Q", 0) + b"{}", "cannot be read"),
    "a header of a gigabyte": (struct.pack("<Q", 1 << 30) + b"{", "and the file has"),
    "no JSON": ("{not json", "cannot be read"),
    "deep nesting": ('{"a":' + "[" * 100_000, "cannot be read"),
    "nothing but objects": ('{"a":{}' + ',"b":{}' * 100_000 + "}", "objects and 0 tensors"),
    "a list": ("[]", "no checkpoint that is known|cannot be read"),
    "a negative extent": (f'{{"a":{entry([-1], [0, 4])}}}', "cannot be read"),
    "a gigantic extent": (f'{{"a":{entry([1 << 62, 1 << 62], [0, 4])}}}', "is declared from"),
    "an extent of thousands of digits": (
        f'{{"a":{entry([0], [0, 4])}}}'.replace("[0]", f"[{'9' * 5000}]"),
        "cannot be read",
    ),
    "a fraction": (f'{{"a":{entry([0.5], [0, 4])}}}', "cannot be read"),
    "a key twice": (f'{{"a":{entry([1], [0, 4])},"a":{entry([1], [0, 4])}}}', "of which 1 twice"),
    "an unknown type": (f'{{"a":{entry([1], [0, 4], "F7")}}}', "unknown type 'F7'"),
    "offsets that are turned round": (f'{{"a":{entry([1], [4, 0])}}}', "is declared from"),
    "offsets beyond the file": (f'{{"a":{entry([2], [0, 8])}}}', "and the file has 4"),
    "a gap": (f'{{"a":{entry([1], [4, 8])}}}', "before it ends at 0"),
    "two at one place": (f'{{"a":{entry([1], [0, 4])},"b":{entry([1], [0, 4])}}}', "before it ends at 4"),
    "too few bytes": (f'{{"a":{entry([3], [0, 4])}}}', "is declared from"),
    "many axes": (f'{{"a":{entry([1] * 33, [0, 4])}}}', "is declared from"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_clear_error(tmp_path: Path, case: str) -> None:
    content, message = HOSTILE[case]
    path = tmp_path / "m.safetensors"
    data = content if isinstance(content, bytes) else struct.pack("<Q", len(content)) + content.encode() + bytes(4)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=message):
        opcost.scan(path)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    header, size = safetensors_header(LAYER)
    (tmp_path / "m.safetensors").write_bytes(header + bytes(size - 1))
    with pytest.raises(SourceError, match=f"take {BYTES} bytes, and the file has {BYTES - 1}"):
        opcost.scan(tmp_path / "m.safetensors")
