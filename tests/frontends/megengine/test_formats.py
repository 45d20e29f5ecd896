"""The four containers, recognized by their content, and files that only look like one of them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import OpcostError, SourceError, UnknownSource
from opcost.frontends.flatbuffer import Pages
from opcost.frontends.megengine import FRONTEND
from opcost.frontends.megengine.model import locate, parse_model, read_model
from opcost.frontends.megengine.schema import _REGISTERED, by_hash, plain, xxh64

Dump = Callable[[str], Path]
SEED = 20160701


def bare(name: str) -> str:
    return name[:-2] if name[-2] == "V" and name[-1].isdigit() else name


def unversioned(data: bytes) -> bytes:
    """An `MGBC` file as versions before it wrote it: no feature bytes, and ids without the operators' versions."""
    start = 4 + 8 + 4
    head = b"MGBS" + bytes(4) + data[start : start + 8]
    body = data[start + 8 :]
    for name in _REGISTERED:
        new = xxh64(name.encode() + b"\0", SEED).to_bytes(8, "little")
        old = xxh64(bare(name).encode(), SEED).to_bytes(8, "little")
        body = body.replace(new, old)
    return head + body


def described(model: Any) -> list[Any]:
    return [
        (op.type, op.name, op.param, op.inputs, op.outputs, [t.shape for t in op.tensors]) for op in model.operators
    ]


# -- hashes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seed", "expected"),
    [  # of the reference implementation
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"xxhash", 20141025, 0xB559B98D844E0635),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0, 0x02A2E85470D6FD96),
    ],
)
def test_the_hash_is_xxh64(text: bytes, seed: int, expected: int) -> None:
    assert xxh64(text, seed) == expected


def test_every_registered_name_is_found_again_by_its_hash() -> None:
    for name in _REGISTERED:
        assert by_hash(xxh64(name.encode() + b"\0", SEED), versioned=True) == plain(name)
        assert by_hash(xxh64(bare(name).encode(), SEED), versioned=False) == plain(name)


def test_an_operator_of_another_version_is_found_too() -> None:
    assert by_hash(xxh64(b"ConvolutionV1\0", SEED), versioned=True) == "Convolution"
    assert by_hash(xxh64(b"ConvBiasForwardV3\0", SEED), versioned=True) == "ConvBias"


def test_an_unknown_hash_becomes_its_own_name() -> None:
    assert by_hash(0xABC, versioned=True) == "idabc"


# -- containers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dwnet_nogn.v1", "two_io.v1_names", "op_nms.v1", "qnet_qint8.v1", "handlstm.v1"])
def test_the_oldest_container_gives_the_same_model(name: str, dump: Dump) -> None:
    data = dump(name).read_bytes()
    old, new = parse_model(unversioned(data), "old"), parse_model(data, "new")
    assert old.format == "FBS v1 (unversioned)"
    assert new.format == "FBS v1"
    assert described(old) == described(new)
    assert old.numbers == new.numbers
    places = [[tensor.offset for op in model.operators for tensor in op.tensors] for model in (old, new)]
    assert {after - before for before, after in zip(*places, strict=True)} == {8}  # the feature bytes


@pytest.mark.parametrize("name", ["dwnet_nogn.v1", "dwnet_nogn.v2"])
def test_a_test_case_holds_the_model_first(name: str, dump: Dump, tmp_path: Path) -> None:
    data = dump(name).read_bytes()
    path = tmp_path / "case.mge"
    path.write_bytes(b"mgbtest0" + struct.pack("<I", 1) + data + data)
    model = read_model(path)
    assert model.testcases == 1
    assert described(model) == described(read_model(dump(name)))
    report = opcost.count(path)
    assert report.totals == opcost.count(dump(name)).totals
    assert [note.code for note in report.notes] == ["testcase"]


@pytest.mark.parametrize("name", ["dwnet_nogn.v1", "dwnet_nogn.v2"])
def test_of_models_one_after_the_other_the_first_is_counted_and_a_note_says_so(
    name: str, dump: Dump, tmp_path: Path
) -> None:
    """As `dump(..., append=True)` writes them; MegEngine too loads the first."""
    path = tmp_path / "two.mge"
    path.write_bytes(dump(name).read_bytes() + dump("two_io.v2").read_bytes())
    report = opcost.count(path)
    assert report.totals == opcost.count(dump(name)).totals
    (note,) = report.notes
    assert note.code == "appended"
    assert note.text.startswith(f"{dump('two_io.v2').stat().st_size} bytes follow the model")
    assert not opcost.count(dump(name)).notes


def test_the_version_of_megengine_is_reported(dump: Dump) -> None:
    report = opcost.count(dump("two_io.v2"))
    assert report.meta["format"] == "FBS v2"
    assert report.meta["megengine"] == "1.13.0"
    assert report.meta["framework"] == "megengine"


def test_content_decides_and_not_the_suffix(any_dump: Path) -> None:
    head = any_dump.read_bytes()[:4096]
    assert FRONTEND.sniff(head, any_dump)
    assert not FRONTEND.sniff(b"PK\x03\x04" + head, any_dump)
    assert not FRONTEND.sniff(b"version https://git-lfs.github.com/spec/v1\n", any_dump)


def test_a_large_file_pointer_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "net.mge"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 45000000\n")
    with pytest.raises(UnknownSource, match="Git LFS pointer"):
        opcost.count(path)


def test_weights_of_quantized_types_keep_scale_and_size(dump: Dump) -> None:
    model = read_model(dump("qnet_qint8.v2_names"))
    tensors = {model.variables[op.outputs[0]].name: op.tensors[0] for op in model.operators if op.tensors}
    weight = tensors["c1.weight"]
    assert weight.dtype.name == "qint8"
    assert weight.dtype.scale is not None
    assert weight.dtype.scale > 0
    assert weight.nbytes == 8 * 3 * 3 * 3
    report = opcost.count(dump("qnet_qint8.v2_names"))
    dtypes = {p.name: p.spec.dtype for p in report.parameters}
    assert dtypes["c1.weight"] == "qint8"


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two_io.v1", "two_io.v2"])
def test_every_cut_is_refused(name: str, dump: Dump) -> None:
    data = dump(name).read_bytes()
    for size in range(len(data)):
        with pytest.raises(SourceError):
            parse_model(data[:size], "cut.mge")


def test_an_error_says_which_file_what_and_where(dump: Dump) -> None:
    data = dump("two_io.v2").read_bytes()
    with pytest.raises(
        SourceError, match=r"net\.mge is cut short: its graph claims \d+ bytes and 96 are left, at byte 0"
    ):
        parse_model(data[:100], "net.mge")


@pytest.mark.parametrize(
    ("at", "width"),
    [(16, 8), (0, 0)],
    ids=["weights", "graph"],
)
def test_gigabytes_that_are_only_claimed_are_refused_at_once(at: int, width: int, dump: Dump) -> None:
    data = bytearray(dump("two_io.v1").read_bytes())
    if width == 0:  # the length of the graph, after the weights
        (weights,) = struct.unpack_from("<Q", data, 16)
        struct.pack_into("<I", data, 24 + weights, 0xFFFFFFF0)
    else:
        struct.pack_into("<Q", data, at, 1 << 40)
    with pytest.raises(SourceError, match="claims"):
        parse_model(bytes(data), "large.mge")


def test_a_tensor_larger_than_its_data_is_refused(dump: Dump) -> None:
    data = dump("mlp.v2").read_bytes()
    shape = struct.pack("<3I", 2, 128, 784)
    assert data.count(shape) >= 1
    with pytest.raises(SourceError, match=r"needs \d+ bytes and has"):
        parse_model(data.replace(shape, struct.pack("<3I", 2, 1 << 31, 1 << 31)), "large.mge")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.mge"
    path.touch()
    with pytest.raises(OpcostError, match="empty"):
        opcost.count(path)


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(SourceError, match="not a MegEngine dump"):
        parse_model(b"something else entirely, and long enough", "net.mge")


def test_a_list_that_names_one_table_twice_is_refused(dump: Dump) -> None:
    """A small file must not declare a large model."""
    data = bytearray(dump("two_io.v2").read_bytes())
    operators = locate(Pages(bytes(data), len(data), "net.mge")).graph.root(b"mgv2").vector(2, 4)
    assert operators is not None
    at, _ = operators
    (first,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4, first - 4)
    with pytest.raises(SourceError, match="listed twice"):
        parse_model(bytes(data), "net.mge")


def test_a_list_without_end_is_refused(dump: Dump) -> None:
    """A hundred thousand operators are no model; 40 MB of them must not become gigabytes of objects."""
    data = bytearray(dump("two_io.v2").read_bytes())
    operators = locate(Pages(bytes(data), len(data), "net.mge")).graph.root(b"mgv2").vector(2, 4)
    assert operators is not None
    at, _ = operators
    count = 100_000
    struct.pack_into("<I", data, at - 4, count)
    data += bytes(4 * count)
    struct.pack_into("<I", data, 0, len(data) - 4)
    with pytest.raises(SourceError, match="a list of 100000 elements is not plausible"):
        parse_model(bytes(data), "net.mge")


@pytest.mark.parametrize(
    "head", [struct.pack("<I", (3 << 30) - 4) + bytes(4) + b"mgv2", b"MGBC" + bytes(12) + struct.pack("<Q", 2 << 30)]
)
def test_gigabytes_of_nothing_are_refused_in_no_time(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "large.mge"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(3 << 30)  # takes no room on the disk
    start = time.process_time()
    with pytest.raises(SourceError):
        opcost.count(path)
    assert time.process_time() - start < 1
