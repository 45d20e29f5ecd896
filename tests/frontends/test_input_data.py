from __future__ import annotations

import collections
import os
import pickle
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import FULL

from opcost.core.graph import TensorSpec
from opcost.errors import InputError
from opcost.frontends.input_data import read_input_data

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def pickled(folder: Path, value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Path:
    path = folder / "data.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def raw(folder: Path, content: bytes) -> Path:
    path = folder / "data.pkl"
    path.write_bytes(content)
    return path


ARRAYS = [
    np.zeros((2, 3), "float32"), np.zeros((), "int64"), np.zeros((0, 4), "uint8"), np.zeros(5, "bool"),
    np.asfortranarray(np.ones((3, 2), "float16")), np.zeros((1, 1, 2), ">i4"), np.zeros(3, "complex64"),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickled_array_is_read_under_every_protocol(array: Any, protocol: int, tmp_path: Path) -> None:
    expected = TensorSpec(array.shape, array.dtype.name)
    assert read_input_data(pickled(tmp_path, array, protocol)) == expected
    assert read_input_data(pickled(tmp_path, {"data": array, "more": array[None]}, protocol)) == {
        "data": expected,
        "more": TensorSpec((1, *array.shape), array.dtype.name),
    }
    assert read_input_data(pickled(tmp_path, collections.OrderedDict(x=array), protocol)) == {"x": expected}


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_numpys_own_files_are_read(array: Any, tmp_path: Path) -> None:
    expected = TensorSpec(array.shape, array.dtype.name)
    np.save(tmp_path / "data.npy", array)
    assert read_input_data(tmp_path / "data.npy") == expected
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "data.npz", data=array, other=np.zeros((7, 8)))
        assert read_input_data(str(tmp_path / "data.npz")) == {"data": expected, "other": TensorSpec((7, 8), "float64")}


def test_what_a_file_is_its_content_decides(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros(3))
    (tmp_path / "data.npy").rename(tmp_path / "data.pkl")
    assert read_input_data(tmp_path / "data.pkl") == TensorSpec((3,), "float64")


class Payload:
    """Runs a program when it is unpickled."""

    def __init__(self, program: Any, *arguments: Any) -> None:
        self.call = program, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: {"data": p}, lambda p: np.array([p], dtype=object)])
def test_a_hostile_pickle_is_refused_and_runs_nothing(wrap: Any, protocol: int, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    payloads = [
        Payload(os.system, f"touch {proof}"),
        Payload(eval, f"open({str(proof)!r}, 'w').close()"),
        Payload(subprocess.Popen, ["touch", str(proof)]),
        Payload(np.save, str(proof), np.zeros(3)),
        Payload(np.fromfile, str(proof)),
    ]
    for payload in payloads:
        path = pickled(tmp_path, wrap(payload), protocol)
        with pytest.raises(InputError, match=r"asks for|no array needs|besides numbers"):
            read_input_data(path)
    time.sleep(0.05)
    assert not proof.exists()
    assert not proof.with_suffix(".npy").exists()
    # The payload is a real one: Python's own unpickler runs it.
    victim = f"import pickle; pickle.load(open({str(pickled(tmp_path, payloads[0]))!r}, 'rb'))"
    subprocess.run([sys.executable, "-c", victim], check=True)
    assert proof.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", r"asks for os\.system"),
        (b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.", r"asks for numpy\.load"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", r"asks for builtins\.eval"),
        (b"\x80\x04\x8c\x15numpy.core.multiarray\x8c\x06scalar\x93.", r"asks for numpy\.core\.multiarray\.scalar"),
        (b"(i__main__\nNet\n.", "the step INST"),
        (b"\x80\x02]q\x00(K\x01K\x02e.", "the step EMPTY_LIST"),
        (b"\x80\x02}q\x00.", "neither an array nor a dict"),
        (b"\x80\x04K\x03.", "neither an array nor a dict"),
        (b"\x80\x04}\x8c\x01aK\x01s.", "its entry 'a' is not an array"),
        (b"\x80\x04}K\x01K\x01s.", "besides arrays by name"),
        (b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged"),
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "too large"),
        (b"\x80\x04Nr\xff\xff\xff\x01.", "would remember 33554431 things"),
        (b"\x80\x04cnumpy\ndtype\n}\x8c\x08__code__Nsb.", "changes something"),
        (b"\x80\x04\x8c\x01a}b.", "damaged"),
        (b"\x80\x04h\x07.", "damaged"),
        (b"\x80\x04.", "damaged"),
        (b"\x80\x04N", "damaged|no end"),
        (b"", "empty"),
        (b"plain text\n", "damaged|the step"),
    ],
    ids=str,
)
def test_what_is_no_pickle_of_arrays_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_input_data(raw(tmp_path, content))


def test_arrays_of_something_else_are_refused(tmp_path: Path) -> None:
    for array in (np.array(["a"]), np.zeros(2, [("a", "i4")]), np.array([None]), np.array(["2020"], "datetime64")):
        with pytest.raises(InputError, match=r"no array needs|not numbers|besides numbers|calls something"):
            read_input_data(pickled(tmp_path, array))
    np.save(tmp_path / "data.npy", np.zeros(2, [("a", "i4")]))
    with pytest.raises(InputError, match="not numbers"):
        read_input_data(tmp_path / "data.npy")
    np.save(tmp_path / "data.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(InputError, match="not numbers"):
        read_input_data(tmp_path / "data.npy")


def test_an_array_that_claims_more_than_there_is_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros((10, 10)))
    content = (tmp_path / "data.npy").read_bytes()
    (tmp_path / "data.npy").write_bytes(content[:-1])
    with pytest.raises(InputError, match="cut short"):
        read_input_data(tmp_path / "data.npy")
    (tmp_path / "data.npy").write_bytes(content.replace(b"(10, 10)", b"(-1, 10)"))
    with pytest.raises(InputError, match="not a tuple of counts"):
        read_input_data(tmp_path / "data.npy")
    whole = pickle.dumps(np.zeros((10, 10)), 4)
    with pytest.raises(InputError, match="does not fit into 800 bytes"):
        read_input_data(raw(tmp_path, whole.replace(b"K\nK\n\x86", b"K\nK\x0b\x86")))


def test_archives_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(InputError, match="not an archive"):
        read_input_data(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.npy", b"hello")
    with pytest.raises(InputError, match="not an array that numpy saved"):
        read_input_data(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_input_data(tmp_path / "nothing.npy")


def test_shared_tuples_do_not_blow_up(tmp_path: Path) -> None:
    """A tuple of itself twice, thirty times: two to the thirtieth elements when it is written out."""
    doubled = b"N" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(30))
    content = b"\x80\x04cnumpy\n_frombuffer\n(C\x00cnumpy\ndtype\n\x8c\x02f4\x85R" + doubled + b"\x8c\x01CtR."
    with pytest.raises(InputError):
        read_input_data(raw(tmp_path, content))


@pytest.mark.parametrize("between", [b"", b"(u", b"q\x00"], ids=["at once", "filled with nothing", "remembered twice"])
def test_a_tuple_that_would_be_hashed_for_ever_is_refused(between: bytes, tmp_path: Path) -> None:
    """As the key of a dict; a tuple of itself twice, sixty times, has two to the sixtieth elements to hash."""
    doubled = b"K\x01" + b"".join(b"\x85%bq%ch%ch%c\x86" % (between, n, n, n) for n in range(60))
    with pytest.raises(InputError, match="a tuple of it unfolds"):
        read_input_data(raw(tmp_path, b"\x80\x04}" + doubled + b"Ns."))


def test_numbers_that_all_have_one_hash_are_no_names(tmp_path: Path) -> None:
    keys = b"".join(b"\x8a\x0a%bN" % (n * (2**61 - 1)).to_bytes(10, "little") for n in range(1, 100_000))
    began = time.process_time()
    with pytest.raises(InputError, match="too large"):
        read_input_data(raw(tmp_path, b"\x80\x04}(" + keys + b"u."))
    assert time.process_time() - began < 2


def test_a_long_word_for_a_type_is_not_read_over_and_over(tmp_path: Path) -> None:
    word = b"X" + (30_000_000).to_bytes(4, "little") + b"<" * 29_999_998 + b"f4" + b"q\x01"
    array = b"cnumpy._core.numeric\n_frombuffer\n(C\x00cnumpy\ndtype\n(h\x01tRK\x00\x85\x8c\x01CtR"
    began = time.process_time()
    with pytest.raises(InputError, match="not numbers"):
        read_input_data(raw(tmp_path, b"\x80\x04" + word + array * 20_000 + b"."))
    assert time.process_time() - began < 5


@settings(max_examples=400 if FULL else 100, deadline=None)
@given(data=st.data(), protocol=st.sampled_from(PROTOCOLS))
def test_a_changed_pickle_is_read_or_refused(
    data: st.DataObject, protocol: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(pickle.dumps({"data": np.arange(6.0).reshape(2, 3), "n": np.zeros((), "i4")}, protocol))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = raw(tmp_path_factory.getbasetemp(), bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        found = read_input_data(path)
    except InputError:
        return
    arrays = found.values() if isinstance(found, dict) else [found]
    assert all(isinstance(array, TensorSpec) for array in arrays)


def test_extents_of_millions_of_digits_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "huge.pkl"
    extent = b"\x8b" + (1_000_000).to_bytes(4, "little") + b"\x7f" * 1_000_000  # LONG4
    state = b"(K\x01(" + extent + b"q\x01" + b"h\x01" * 3000 + b"tcnumpy\ndtype\n(X\x02\0\0\0f4I0\nI1\ntR\x89C\0t"
    made = b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tC\x01btR"
    path.write_bytes(made + state + b"b.")
    began = time.process_time()
    with pytest.raises(InputError):
        read_input_data(path)
    assert time.process_time() - began < 2


def test_a_text_is_not_turned_into_bytes_over_and_over(tmp_path: Path) -> None:
    path = tmp_path / "copies.pkl"
    text = b"X" + (1_000_000).to_bytes(4, "little") + b"x" * 1_000_000 + b"q\x01"
    copy = b"c_codecs\nencode\n(h\x01X\x06\0\0\0latin1tR"
    path.write_bytes(b"\x80\x04" + text + copy * 1000 + b".")
    with pytest.raises(InputError, match="more of its text than it has"):
        read_input_data(path)


def test_a_pickle_of_millions_of_steps_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "long.pkl"
    path.write_bytes(b"\x80\x04" + b"N" * 1_000_000 + b".")
    with pytest.raises(InputError, match="more than 500000 steps"):
        read_input_data(path)


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("damaged", [False, True])
def test_an_archive_packed_as_numpy_never_packs_is_refused(tmp_path: Path, packing: int, damaged: bool) -> None:
    path = tmp_path / "odd.npz"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("x.npy", bytes(1000))
    content = bytearray(path.read_bytes())
    if damaged:
        content[40:60] = b"\xff" * 20
    path.write_bytes(content)
    with pytest.raises(InputError, match="packed in an unusual way"):
        read_input_data(path)


def test_an_archive_with_an_endless_list_of_members_is_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    entry = b"PK\1\2" + bytes(42)
    size = len(entry) * 300_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, size, 0, 0)
    path.write_bytes(b"PK\3\4" + entry[4:] + entry * 299_999 + end)
    with pytest.raises(InputError, match="list of members is said to have"):
        read_input_data(path)
