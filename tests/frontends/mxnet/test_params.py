"""Parameter files of every version, listed without reading the data; damaged ones are refused."""

from __future__ import annotations

import io
import json
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from peak_memory import needs_peak, rises_by_less_than
from work import calls

from opcost.errors import SourceError
from opcost.frontends.mxnet.params import SavedArray, read_params

V1, V2 = 0xF993FAC8, 0xF993FAC9
FLOAT32, BFLOAT16 = 0, 12


def shape_of(*extents: int) -> bytes:
    return struct.pack("<i", len(extents)) + struct.pack(f"<{len(extents)}q", *extents)


def array_v2(*extents: int, dtype: int = FLOAT32, data: bytes = b"") -> bytes:
    return struct.pack("<Ii", V2, 0) + shape_of(*extents) + struct.pack("<3i", 1, 0, dtype) + data


def listed(arrays: list[bytes], names: list[str]) -> bytes:
    found = struct.pack("<3Q", 0x112, 0, len(arrays)) + b"".join(arrays) + struct.pack("<Q", len(names))
    for name in names:
        found += struct.pack("<Q", len(name.encode())) + name.encode()
    return found


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Read these bytes as a parameter file."""
    path = tmp_path / "net-0000.params"

    def reading(content: bytes) -> tuple[SavedArray, ...]:
        path.write_bytes(content)
        return read_params(path)

    return reading


def test_the_golden_files_are_listed_as_mxnet_loads_them(data: Path) -> None:
    expected = json.loads((data / "params_formats/expected.json").read_text())
    assert len(expected) >= 12
    for name, what in expected.items():
        found = read_params(data / "params_formats" / name)
        assert [(a.name, a.shape, a.dtype, a.storage) for a in found] == [
            (
                array["key"] or "",
                None if array.get("none") else tuple(array["shape"]),
                array.get("dtype", "float32"),
                array.get("stype", "default"),
            )
            for array in what["arrays"]
        ], name


def test_the_parameters_of_every_golden_case_are_listed(case: Any) -> None:
    path = case.symbol.with_name("model-0000.params")
    if not path.exists():
        pytest.skip("the case has no parameters")
    assert sorted((a.name, a.shape, a.dtype) for a in read_params(path)) == sorted(
        (array["key"], tuple(array["shape"]), array["dtype"]) for array in case.expected["params_listing"]
    )


def test_files_of_each_version_and_a_list_without_names(data: Path) -> None:
    for version in ("v0.9.5", "v1.0.0", "v1.9.1", "v2.0.0b1"):
        names = {array.name for array in read_params(data / "versions" / version / "model-0000.params")}
        assert all(name.startswith(("arg:", "aux:")) for name in names)
    nameless = read_params(data / "thirdparty/legacy_ndarray.v0")
    assert [array.name for array in nameless] == [""] * len(nameless)
    assert nameless[0].shape == (128,)


def test_one_array_of_numpys_and_an_archive_of_two_point_zero(data: Path) -> None:
    folder = data / "versions/v2.0.0b1"
    assert read_params(folder / "npx_save.npy") == (SavedArray("", (2, 3), "float32"),)
    assert SavedArray("s", (), "float32") in read_params(folder / "npx_savez.params")
    assert SavedArray("c.weight", (8, 3, 3, 3), "float32") in read_params(folder / "save_parameters.params")


def test_half_precision_of_google_is_known(read: Any) -> None:
    assert read(listed([array_v2(2, 3, dtype=BFLOAT16, data=bytes(12))], ["arg:w"])) == (
        SavedArray("arg:w", (2, 3), "bfloat16"),
    )


def test_an_archive_holds_sparse_arrays_as_folders(read: Any) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        for name, descr, shape, content in (
            ("w/data", "<f4", "(2, 4)", bytes(32)), ("w/indices", "<i8", "(2,)", bytes(16)),
            ("w/shape", "<i8", "(2,)", struct.pack("<2q", 6, 4)), ("w/format", "|u1", "(10,)", b"row_sparse"),
            ("b", "<b2", "(5,)", bytes(10)),
        ):  # fmt: skip
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            out.writestr(
                f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content
            )
    stored = 128 + 2 * 4 * 4 + 128 + 2 * 8  # data and indices, each with its head
    assert set(read(archive.getvalue())) == {
        SavedArray("w", (6, 4), "float32", "row_sparse", stored),
        SavedArray("b", (5,), "bfloat16"),
    }


def test_an_array_whose_head_cannot_be_a_mapping_is_refused(read: Any) -> None:
    head = b"{{1}: 'descr'}".ljust(117) + b"\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("w.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
    with pytest.raises(SourceError):
        read(archive.getvalue())


def test_half_a_gigabyte_is_listed_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "large-0000.params"
    shapes = [(4096, 25088), (4096, 4096), (1000, 4096)]
    with path.open("wb") as file:
        file.write(struct.pack("<3Q", 0x112, 0, len(shapes)))
        for rows, columns in shapes:
            file.write(array_v2(rows, columns))
            file.seek(4 * rows * columns, 1)
        file.write(struct.pack("<Q", len(shapes)))
        for name in (b"arg:a", b"arg:b", b"arg:c"):
            file.write(struct.pack("<Q", len(name)) + name)
    assert path.stat().st_size > 490_000_000
    assert [array.shape for array in read_params(path)] == shapes
    tracemalloc.start()
    try:
        assert calls(lambda: read_params(path)) < 1000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


GOOD = listed([array_v2(2, 3, data=bytes(24)), array_v2(4, data=bytes(16))], ["arg:w", "arg:b"])


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_file_cut_anywhere_is_refused(length: int, read: Any) -> None:
    with pytest.raises(SourceError):
        read(GOOD[:length])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is an empty file"),
        (struct.pack("<3Q", 0x113, 0, 0), "begins with 13 01"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b'{"nodes": []}', "is JSON"),
        (b"\x80\x02}q\x00.", "a Python pickle, which opcost never opens"),
        (struct.pack("<3Q", 0x112, 0, 1 << 60), "more than its 24 bytes can"),
        (listed([array_v2(1 << 40, 1 << 20)], ["arg:w"]), "needs 4611686018427387904 bytes"),
        (listed([array_v2(-1, 3)], ["arg:w"]), r"has the shape \(-1, 3\)"),
        (listed([struct.pack("<I", V1) + shape_of(-(1 << 62), 8) + bytes(64)], []), "has the shape"),
        (listed([array_v2(2, dtype=99, data=bytes(8))], ["arg:w"]), "element type 99"),
        (listed([struct.pack("<Ii", V2, 7) + shape_of(2)], ["arg:w"]), "storage type 7"),
        (listed([struct.pack("<Ii", V2, 0) + struct.pack("<i", 1000)], []), "1000 axes"),
        (listed([struct.pack("<I", 0xDEADBEEF) + bytes(64)], ["arg:w"]), "0xdeadbeef, no array that MXNet has ever written"),
        (listed([array_v2(2, data=bytes(8))], ["arg:w", "arg:b"]), "1 arrays and 2 names"),
        (listed([array_v2(2, data=bytes(8))], []) [:-8] + struct.pack("<2Q", 1, 1 << 40), "1099511627776 bytes"),
        (b"PK\x03\x04" + bytes(100), "not a valid archive"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}", "has the shape None"),
    ],
)  # fmt: skip
def test_what_is_no_parameter_file_is_refused_with_the_reason(content: bytes, says: str, read: Any) -> None:
    with pytest.raises(SourceError, match=says):
        read(content)


@needs_peak
def test_a_claim_of_exabytes_takes_neither_time_nor_memory(read: Any) -> None:
    start = time.process_time()
    with rises_by_less_than(20 << 20), pytest.raises(SourceError):
        read(listed([array_v2(1 << 31, 1 << 30)], ["arg:w"]))
    assert time.process_time() - start < 0.5


def test_the_data_length_of_a_sparse_array_follows_from_its_indices(data: Path) -> None:
    plain, odd = (
        read_params(data / "params_formats" / f"{name}.params")
        for name in ("v2_sparse", "v2_sparse_zero_storage_shape")
    )
    assert plain == odd
