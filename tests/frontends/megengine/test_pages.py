"""Dumps read page by page: weights are skipped, and a file that is cut meanwhile is an error and not the end of the process."""

from __future__ import annotations

import os
import struct
import threading
import tracemalloc
from pathlib import Path

import pytest

from opcost.compat.megengine.network_visualize import count_dump
from opcost.errors import SourceError
from opcost.frontends import flatbuffer
from opcost.frontends.megengine.model import parse_model, read_model

DATA = Path(__file__).parents[2] / "data" / "megengine" / "mge"
DUMPS = [DATA / "mlp.v2.mge", DATA / "resnet18_slim.v1_fuse.mge", DATA / "resnet18_slim.v2_noopt.mge"]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.name)
@pytest.mark.parametrize("shift", [3, 7, 14])
def test_pages_of_any_size_give_what_the_whole_file_gives(
    path: Path, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = parse_model(path.read_bytes(), str(path))
    monkeypatch.setattr(flatbuffer, "SMALL", 0)
    monkeypatch.setattr(flatbuffer, "_SHIFT", shift)
    monkeypatch.setattr(flatbuffer, "_MOST_PAGES", 20)
    assert read_model(path) == whole


def test_a_dump_of_gigabytes_is_read_in_little_memory(tmp_path: Path) -> None:
    small = (DATA / "resnet18_slim.v1_fuse.mge").read_bytes()
    graph_size, more = struct.unpack_from("<Q", small, 16)[0], 8 << 30
    path = tmp_path / "large.mge"
    with path.open("wb") as file:  # the same graph behind eight gigabytes more of weights, none of which is on the disk
        file.write(small[:16] + struct.pack("<Q", graph_size + more) + small[24 : 24 + graph_size])
        file.seek(more, os.SEEK_CUR)
        file.write(small[24 + graph_size :])
    tracemalloc.start()
    try:
        model = read_model(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.operators == parse_model(small, "small.mge").operators
    assert peak < 16 << 20


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("read", [read_model, count_dump])
def test_a_dump_that_is_cut_while_it_is_read_is_an_error(
    tmp_path: Path, small: bool, read: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(flatbuffer, "SMALL", 0)
    content = (DATA / "resnet18_slim.v2_noopt.mge").read_bytes()
    path = tmp_path / "cut.mge"
    stop = threading.Event()

    def cut() -> None:
        while not stop.is_set():
            os.truncate(path, 100)
            path.write_bytes(content)

    path.write_bytes(content)
    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        for _ in range(40):
            try:
                read(path)  # type: ignore[operator]
            except SourceError as exc:
                assert "cut.mge" in str(exc)  # noqa: PT017
    finally:
        stop.set()
        cutter.join()


def test_a_dump_that_became_shorter_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cut.mge"
    path.write_bytes((DATA / "mlp.v2.mge").read_bytes())
    monkeypatch.setattr(flatbuffer, "SMALL", 0)
    with pytest.raises(SourceError, match="changed while it was read"), flatbuffer.pages_of(path) as data:  # noqa: PT012 - it changes inside
        os.truncate(path, 1000)
        data.piece(20_000, 4)
