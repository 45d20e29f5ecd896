"""Files that a user named: what is read as it is, what is kept because it comes only once, and what is refused at once."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import opcost
from opcost.cli.main import run
from opcost.core import files
from opcost.core.files import head_of, keep_pipes, length_of, opened, read_whole
from opcost.errors import SourceError, UnknownSource

DATA = Path(__file__).parents[1] / "data"
DUMP = DATA / "megengine" / "mge" / "mlp.v2.mge"
SYMBOL = DATA / "mxnet" / "versions" / "v1.9.1" / "model-symbol.json"
TRACE = DATA / "traces" / "kineto" / "cuda_cudagraph.json.gz"

COMMANDS = (("count",), ("analyze",), ("compare", str(DUMP)), ("check", "--max-macs", "1"), ("visualize",))


def a_directory(folder: Path) -> Path:
    (folder / "inner.json").mkdir()
    return folder / "inner.json"


def a_link_to_a_device(folder: Path) -> Path:
    (folder / "zero.mge").symlink_to("/dev/zero")
    return folder / "zero.mge"


def a_pipe_without_a_writer(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def a_socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as end:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(folder)  # the name of a socket must be short
            end.bind("socket")
        finally:
            os.fchdir(here)
            os.close(here)
    return folder / "socket"


SPECIAL: tuple[Callable[[Path], Path], ...] = (
    a_directory, a_link_to_a_device, a_pipe_without_a_writer, a_socket, lambda _: Path("/dev/zero"),
    lambda _: Path("/dev/null"), lambda _: Path("/proc/self/status"), lambda _: Path("/proc/self/mem"),
)  # fmt: skip


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_special_file_is_refused_at_once(
    command: tuple[str, ...], make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path)
    if not path.exists():
        pytest.skip("this system has no such file")
    began = time.monotonic()
    assert run([*command, str(path)]) == 2
    assert time.monotonic() - began < 5
    said = capsys.readouterr().err
    assert "should not happen" not in said
    assert str(path) in said or path.is_dir()


def test_a_file_that_is_not_there_or_empty_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(UnknownSource, match="there is no file"), opened(tmp_path / "none"):
        pass
    (tmp_path / "none").touch()
    with pytest.raises(UnknownSource, match="is an empty file"), opened(tmp_path / "none"):
        pass
    with pytest.raises(SourceError, match="cannot be read"), opened("no\0name"):
        pass


@pytest.mark.parametrize("end", ["shorter", "longer"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, end: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with pytest.raises(SourceError, match="changed while it was read"), opened(path) as file:  # noqa: PT012 - it changes inside
        file.read(1)
        path.write_bytes(bytes(10 if end == "shorter" else 1000))


def test_what_is_said_of_a_file_that_changed_is_that_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with pytest.raises(SourceError, match="changed while it was read"), opened(path):  # noqa: PT012 - it changes inside
        path.write_bytes(bytes(10))
        raise SourceError("it is damaged")


def test_more_than_is_believed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SourceError, match="more than 1 MiB, which no report has"):
        read_whole(path, 1 << 20, "report")


@pytest.fixture
def pipe() -> Iterator[Callable[[bytes, float], str]]:
    """Makes pipes into which a thread writes, as a shell does for `<(...)`; their names."""
    ends: list[int] = []
    writers: list[threading.Thread] = []

    def make(content: bytes, after: float = 0.0) -> str:
        end, other = os.pipe()
        ends.append(end)

        def write() -> None:
            time.sleep(after)
            with os.fdopen(other, "wb") as file:
                try:
                    file.write(content)
                    file.flush()
                except BrokenPipeError:
                    file.detach()
                    os.close(other)

        writers.append(threading.Thread(target=write))
        writers[-1].start()
        return f"/dev/fd/{end}"

    yield make
    for end in ends:
        os.close(end)
    for writer in writers:
        writer.join()


def test_a_pipe_is_read_as_often_as_needed(pipe: Callable[..., str]) -> None:
    name = pipe(b"x" * 300_000 + b"end", after=0.8)
    with keep_pipes():
        assert head_of(name, 3) == b"xxx"
        with opened(name) as outer, opened(name) as inner:
            assert inner.read(5) == b"xxxxx"
            assert length_of(outer) == 300_003
            outer.seek(-3, os.SEEK_END)
            assert outer.read() == b"end"
            assert inner.read() == b"x" * 299_995 + b"end"


def test_of_a_pipe_that_is_not_understood_no_more_than_its_beginning_is_taken(tmp_path: Path) -> None:
    script = f"yes nonsense | head -c 3000000000 | {sys.executable} -m opcost count -"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "/dev/stdin is a text file" in done.stderr


def test_a_pipe_that_does_not_end_is_given_up(pipe: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_PIPE", 1 << 17)
    with pytest.raises(SourceError, match="come through /dev/fd"), opened(pipe(bytes(1 << 19))) as file:
        file.read()


def test_a_named_pipe_is_read_when_a_process_writes_and_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for content in (b"first", b"second"):
        writer = threading.Thread(target=path.write_bytes, args=(content,))
        writer.start()
        with keep_pipes():
            assert head_of(path, 100) == content
        writer.join()


def test_a_dump_a_report_a_symbol_and_a_trace_come_through_pipes(pipe: Callable[..., str], tmp_path: Path) -> None:
    report = opcost.count(DUMP)
    assert opcost.count(pipe(DUMP.read_bytes())).totals == report.totals
    report.save(str(tmp_path / "r.json"))
    saved = (tmp_path / "r.json").read_bytes()
    assert opcost.load_report(pipe(saved)).totals == report.totals
    assert opcost.count(pipe(saved)).totals == report.totals
    shapes = {"data": (1, 3, 32, 32)}
    assert opcost.count(pipe(SYMBOL.read_bytes()), shapes=shapes).totals.macs > 0
    rows = opcost.read_profile(TRACE).rows
    assert opcost.read_profile(pipe(TRACE.read_bytes())).rows == rows
    assert opcost.read_profile(pipe(gzip.decompress(TRACE.read_bytes()))).rows == rows


@pytest.mark.parametrize("line", [
    "count <(cat $REPORT)", "count - < $REPORT", "count /dev/stdin < $REPORT", "count <(cat $DUMP)", "count - < $DUMP",
    "analyze <(zcat $TRACE)", "analyze - < $TRACE", "analyze /dev/stdin < $TRACE", "check <(cat $DUMP) --max-macs 1G",
    "compare <(cat $REPORT) $REPORT", "visualize <(cat $DUMP)",
])  # fmt: skip
def test_a_command_reads_what_is_piped_in(line: str, tmp_path: Path) -> None:
    opcost.count(DUMP).save(str(tmp_path / "r.json"))
    paths = {"REPORT": str(tmp_path / "r.json"), "DUMP": str(DUMP), "TRACE": str(TRACE)}
    script = f"{sys.executable} -m opcost {line} --quiet"
    done = subprocess.run(
        ["bash", "-c", script], env=os.environ | paths, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
