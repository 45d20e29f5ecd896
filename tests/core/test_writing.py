"""The old file, or the new one whole: through full disks, kills, Ctrl-C, two writers at once, and odd places to write to."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from opcost.core import files
from opcost.core.files import UNFINISHED, check_writable, write_bytes, write_text
from opcost.errors import WriteError

OLD = "the old file\n"
NEW = json.dumps({"numbers": list(range(50_000))})
ANYBODY = 65534


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(OLD)
    return path


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def assert_untouched(target: Path) -> None:
    assert target.read_text() == OLD
    assert names(target.parent) == [target.name]


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """A disk that is full after `size` bytes; Python ignores the signal, so the write fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def failing(code: int) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def run(code: str, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", f"from opcost.core.files import write_text; import sys; {code}"]
    return subprocess.Popen([*words, *map(str, arguments)], **options)


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4096, 8192, 8193, len(NEW) - 1])
def test_a_disk_that_is_full_in_the_middle_leaves_the_old_file(target: Path, size: int) -> None:
    with (
        pytest.raises(WriteError, match="File too large; the old file is unchanged") as caught,
        no_file_larger_than(size),
    ):
        write_text(target, NEW)
    assert "ulimit" in caught.value.hint
    assert_untouched(target)


@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.chmod"])
def test_a_fault_at_any_step_leaves_the_old_file(target: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, failing(errno.ENOSPC))
    with pytest.raises(WriteError, match="No space left on device") as caught:
        write_text(target, NEW)
    monkeypatch.undo()
    assert "make room" in caught.value.hint
    assert_untouched(target)


def test_a_file_that_was_not_there_is_not_there_after_a_fault(tmp_path: Path) -> None:
    with pytest.raises(WriteError) as caught, no_file_larger_than(100):
        write_text(tmp_path / "new.json", NEW)
    assert "old file" not in str(caught.value)
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_cannot_flush_is_written_to(
    target: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing(code))
    write_text(target, NEW)
    assert target.read_text() == NEW


def test_ctrl_c_at_any_line_leaves_the_old_file_or_the_new_one_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.json"

    def interrupted_at(wanted: int) -> bool:
        """Whether there was such a line."""
        seen = 0

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != files.__file__:
                return None
            if event == "line":
                seen += 1
                if seen == wanted:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            write_text(target, NEW)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    line = 1
    outcomes = set()
    target.write_text(OLD)
    while interrupted_at(line):
        outcomes.add(target.read_text())
        assert outcomes <= {OLD, NEW}
        assert names(tmp_path) == [target.name]
        target.write_text(OLD)
        line += 1
    assert line > 20
    assert OLD in outcomes
    assert target.read_text() == NEW


def test_a_kill_in_the_middle_leaves_a_whole_file_and_no_name_that_anybody_reads(target: Path) -> None:
    write_text(target, json.dumps([0] * 1_000_000))
    numbered = "write_text(sys.argv[1], json.dumps([i] * 1_000_000)); print(i, flush=True)"
    endless = f"import json, itertools\nfor i in itertools.count(1): {numbered}"
    for delay in (0.0, 0.011, 0.023, 0.037):
        process = run(f"exec({endless!r})", target, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.communicate()
        found = json.loads(target.read_text())
        assert found == [found[0]] * 1_000_000
    left = [name for name in names(target.parent) if name != target.name]
    assert all(name.startswith(UNFINISHED) and "." not in name[1:] for name in left)


def test_of_two_writers_at_once_a_reader_sees_one_whole(target: Path) -> None:
    write_text(target, json.dumps(["start"]))
    rounds = "for i in range(150): write_text(sys.argv[1], '[' + ','.join([sys.argv[2]] * int(sys.argv[3])) + ']')"
    writers = [run(f"exec({rounds!r})", target, word, count) for word, count in ((1, 40_000), (22222, 90_000))]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        found = json.loads(target.read_text())
        seen.add((found[0], len(found)))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {("start", 1), (1, 40_000), (22222, 90_000)}
    assert len(json.loads(target.read_text())) in {40_000, 90_000}
    assert names(target.parent) == [target.name]


def test_half_a_character_in_a_text_is_written_as_its_escape(target: Path) -> None:
    write_text(target, '{"name": "a\udcff\ud800"}')
    assert target.read_bytes() == rb'{"name": "a\udcff\ud800"}'
    assert json.loads(target.read_text()) == {"name": "a\udcff\ud800"}


# -- permissions and links ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_the_permissions_of_the_old_file_are_kept(target: Path, mode: int) -> None:
    target.chmod(mode)
    write_text(target, NEW)
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_that_any_new_file_has(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new", NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_and_the_group_of_the_old_file_are_kept(target: Path) -> None:
    os.chown(target, 12345, 23456)
    write_text(target, NEW)
    assert (target.stat().st_uid, target.stat().st_gid) == (12345, 23456)


def test_a_link_stays_a_link_and_its_target_is_written(target: Path) -> None:
    (target.parent / "there").mkdir()
    real = target.rename(target.parent / "there" / "real.json")
    target.symlink_to("there/real.json")
    (target.parent / "second").symlink_to("report.json")
    write_text(target.parent / "second", NEW)
    assert (target.parent / "second").is_symlink()
    assert target.is_symlink()
    assert not real.is_symlink()
    assert real.read_text() == NEW
    assert names(real.parent) == ["real.json"]


def test_a_link_to_nothing_makes_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("made.json")
    write_text(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "made.json").read_text() == NEW


def test_links_in_a_circle_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for write in (check_writable, lambda path: write_text(path, NEW)):
        with pytest.raises(WriteError, match="a cannot be written: Too many levels of symbolic links"):
            write(tmp_path / "a")


def test_the_longest_name_that_a_file_can_have_is_no_fault(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250 + ".json")
    write_text(target, NEW)
    assert target.read_text() == NEW


def test_a_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="File name too long") as caught:
        write_text(tmp_path / ("n" * 300), NEW)
    assert "shorter" in caught.value.hint


@pytest.mark.parametrize("check", [check_writable, lambda path: write_text(path, NEW)])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "it is a folder"),
        ("no/x.json", "there is no folder .*no"),
        ("file/x.json", "Not a directory"),
        ("x\0y", "null"),
    ],
)
def test_a_path_where_no_file_can_be_is_reported(
    tmp_path: Path, path: str, said: str, check: Callable[[str], None]
) -> None:
    (tmp_path / "file").write_text(OLD)
    with pytest.raises(WriteError, match=f"cannot be written: .*{said}"):
        check(f"{tmp_path}/{path}")
    assert names(tmp_path) == ["file"]


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder in which this process has no rights but those that the permissions give."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, ANYBODY, ANYBODY)
            os.seteuid(ANYBODY)
        try:
            yield Path(name)
        finally:
            Path(name).chmod(0o700)
            if os.getuid() == 0:
                os.seteuid(0)


@pytest.mark.parametrize("check", [check_writable, lambda path: write_text(path, NEW)])
def test_a_file_that_is_protected_is_not_replaced(unprivileged_folder: Path, check: Callable[[Path], None]) -> None:
    target = unprivileged_folder / "report.json"
    target.write_text(OLD)
    target.chmod(0o444)
    with pytest.raises(WriteError, match="Permission denied; the old file is unchanged"):
        check(target)
    assert_untouched(target)


@pytest.mark.parametrize("check", [check_writable, lambda path: write_text(path, NEW)])
def test_in_a_folder_that_is_protected_a_file_is_not_overwritten_in_place(
    unprivileged_folder: Path, check: Callable[[Path], None]
) -> None:
    target = unprivileged_folder / "report.json"
    target.write_text(OLD)
    unprivileged_folder.chmod(0o555)
    with pytest.raises(WriteError, match=r"Permission denied in the folder .*; the old file is unchanged") as caught:
        check(target)
    assert "its folder must be writable" in caught.value.hint
    assert_untouched(target)


# -- what is no ordinary file ------------------------------------------------------------------------------------------


def test_a_pipe_with_a_name_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    check_writable(tmp_path / "pipe")
    write_text(tmp_path / "pipe", NEW)
    reader.join()
    assert got == [NEW]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert names(tmp_path) == ["pipe"]


def test_devices_are_written_to_and_stay() -> None:
    null = Path(os.devnull)
    before = null.stat().st_ino
    write_text(null, NEW)
    assert null.stat().st_ino == before
    with pytest.raises(WriteError, match="/dev/full cannot be written: No space left on device\n"):
        write_text("/dev/full", NEW)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_standard_output_gets_the_text_in_its_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    out = tmp_path / "out.txt"
    out.write_text("before\n")
    code = "write_text(sys.argv[1], 'text\\n'); print('after')"
    with out.open("a") as stream:
        assert run(code, tmp_path / name, stdout=stream, cwd=tmp_path).wait() == 0
    assert out.read_text() == "before\ntext\nafter\n"
    piped = run(code, tmp_path / name, stdout=subprocess.PIPE, cwd=tmp_path)
    assert piped.communicate()[0] == b"text\nafter\n"


def test_a_shell_can_pass_the_file_on(tmp_path: Path) -> None:
    code = "from opcost.core.files import write_text; import sys; write_text(sys.argv[1], 'x' * 200_000)"
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" >(wc -c > {tmp_path}/counted); wait $!', sys.executable, code], check=True
    )
    deadline = time.monotonic() + 10
    while not (tmp_path / "counted").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done.returncode == 0
    assert int((tmp_path / "counted").read_text()) == 200_000


def test_a_reader_that_goes_away_is_no_fault_of_the_file() -> None:
    reading, writing_end = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(BrokenPipeError):
            write_bytes(f"/dev/fd/{writing_end}", b"x")
    finally:
        os.close(writing_end)


def test_what_a_killed_run_left_is_removed_and_what_is_being_written_is_not(target: Path) -> None:
    old, fresh, other = (target.with_name(UNFINISHED + end) for end in ("0" * 16, "1" * 16, "of-another"))
    for path in (old, fresh, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (0, 0))
    write_text(target, NEW)
    assert sorted(names(target.parent)) == sorted([target.name, fresh.name, other.name])
