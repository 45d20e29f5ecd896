"""Every way to write a file leaves the old one whole when it fails, and says on the command line what, where and why."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.core.files import UNFINISHED
from opcost.core.graph import Cost, TensorSpec
from opcost.core.profile import Kernel, ProfileRow
from opcost.core.report import Report
from opcost.errors import WriteError
from opcost.profiles import Profile

DUMP = Path(__file__).resolve().parents[1] / "data/megengine/mge/mlp.v2.mge"
TRACE = Path(__file__).resolve().parents[1] / "data/traces/kineto/cpu_resnet18_fwd_plain.json.gz"
OLD = "the old file\n"


@pytest.fixture(scope="module")
def report() -> Report:
    return opcost.count(DUMP)


@pytest.fixture(scope="module")
def profile() -> Profile:
    spec = TensorSpec((4, 4), "float32")
    kernel = Kernel("gemm", "gpu:0", "7", 10, 500)
    rows = tuple(
        ProfileRow(
            id=number, name=f"layer{number}", type="aten::mm", kind="matmul", device="gpu:0", host_start_ns=number,
            host_ns=700, host_self_ns=700, device_ns=500, device_total_ns=500, kernels=(kernel,), ins=(spec, spec),
            outs=(spec,), cost=Cost(64, 128, 128, 64), step=0,
        )
        for number in range(20)
    )  # fmt: skip
    return Profile(
        meta={"source": "net", "format": "opcost", "steps": "1", "overhead": "+1 %"}, rows=rows, timed_ns=(7, 8, 9)
    )


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond this; Python ignores the signal, so that the write itself fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


SAVED = ["x.json", "x.csv", "x.md", "x.tex", "x.txt"]
COMMANDS = {
    **{f"show -o {name}": ("REPORT", name) for name in SAVED},
    **{f"analyze -o {name}": ("PROFILE", name) for name in [*SAVED, "x.html"]},
    **{f"scan -o {name}": ("CHECKPOINT", name) for name in [*SAVED, "x.html"]},
    "analyze --format megengine": ("PROFILE", "x.out", "--format", "megengine"),
    **{
        f"profile --layout {layout}": ("RUN", "x.json", "--layout", layout)
        for layout in ("opcost", "megengine", "chrome")
    },
}
"""What is written from, the name of the file, and further words."""


@pytest.fixture
def command(
    report: Report,
    profile: Profile,
    tmp_path: Path,
    opcost_command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """Write a file by a command line; nothing is measured."""
    report.save(str(tmp_path / "report.json"))
    profile.save(tmp_path / "profile.json")
    monkeypatch.setattr("opcost.cli.profile._recorded", lambda *args, **options: profile)

    def call(name: str, output: Path | str) -> Any:
        kind, _, *words = COMMANDS[name]
        start = {
            "REPORT": ("count", tmp_path / "report.json"),
            "PROFILE": ("analyze", tmp_path / "profile.json"),
            "RUN": ("profile", "net.py:Net"),
            "CHECKPOINT": ("scan", DUMP),
        }[kind]
        return opcost_command(*start, "-o", output, *words)

    return call


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.parametrize("name", SAVED)
def test_a_report_that_cannot_be_saved_leaves_the_old_file(report: Report, target: Path, name: str) -> None:
    (target / name).write_text(OLD)
    with pytest.raises(WriteError, match=name), full_disk():
        report.save(str(target / name))
    assert (target / name).read_text() == OLD
    assert [path.name for path in target.iterdir()] == [name]


def test_a_profile_that_cannot_be_saved_leaves_the_old_file(profile: Profile, target: Path) -> None:
    (target / "x.json").write_text(OLD)
    with pytest.raises(WriteError), full_disk():
        profile.save(target / "x.json")
    assert (target / "x.json").read_text() == OLD
    assert [path.name for path in target.iterdir()] == ["x.json"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_cannot_write_leaves_the_old_file_and_says_why(
    command: Callable[..., Any], target: Path, name: str
) -> None:
    file = target / COMMANDS[name][1]
    file.write_text(OLD)
    with full_disk():
        done = command(name, file)
    assert done.code == 2, done.err
    assert f"{file} cannot be written: File too large; the old file is unchanged" in done.err
    assert file.read_text() == OLD
    assert list(target.iterdir()) == [file]
    done = command(name, file)
    assert done.code == 0, done.err
    assert file.read_text() != OLD
    assert list(target.iterdir()) == [file]


@pytest.mark.parametrize("name", ["show -o x.json", "analyze -o x.json", "profile --layout opcost"])
@pytest.mark.parametrize(
    ("output", "said"),
    [("no/x.json", "there is no folder"), ("is.json", "is a folder"), ("/dev/full", "No space left")],
)
def test_a_file_that_a_command_cannot_write_is_reported(
    command: Callable[..., Any], target: Path, name: str, output: str, said: str
) -> None:
    (target / "is.json").mkdir()
    if output == "/dev/full":
        (target / "full.json").symlink_to(output)
        output = "full.json"
    done = command(name, target / output)
    assert done.code == 2, done.err
    assert "cannot be written" in done.err
    assert said in done.err


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_every_fault_of_the_disk_is_exit_code_2(
    command: Callable[..., Any], target: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    for name in ("show -o x.json", "analyze -o x.csv", "profile --layout chrome"):
        done = command(name, target / COMMANDS[name][1])
        assert done.code == 2, done.err
        assert os.strerror(code) in done.err
    assert not list(target.iterdir())


def test_a_count_asks_beforehand_whether_it_can_write(opcost_command: Callable[..., Any], tmp_path: Path) -> None:
    done = opcost_command("count", "no-such-file.py:Net", "-o", tmp_path / "no" / "x.json")
    assert done.code == 2
    assert "there is no folder" in done.err


def test_a_kill_at_any_line_of_saving_leaves_a_whole_report(report: Report, target: Path) -> None:
    """A process is forked for each line of the functions that save, and kills itself there."""
    file = target / "x.json"
    report.save(str(file))
    whole = file.read_text()
    driver = f"""
import os, signal, sys, opcost
report = opcost.load_report({str(file)!r})
report.render("json")
wanted = 0
while True:
    wanted += 1
    if not (child := os.fork()):
        seen = 0
        def trace(frame, event, arg):
            global seen
            if frame.f_code.co_name not in ("save", "write_text", "write_bytes", "_replace"):
                return None
            seen += event == "line"
            if seen == wanted:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        report.save({str(file)!r})
        sys.settrace(None)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    assert open({str(file)!r}).read() == {whole!r}, wanted
print(wanted)
"""
    done = subprocess.run([sys.executable, "-c", driver], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
    left = [path.name for path in target.iterdir() if path != file]
    assert all(name.startswith(UNFINISHED) for name in left)
    assert opcost.load_report(file) == report


def writes(tree: ast.AST) -> Iterator[str]:
    """Calls that open or replace a file for writing, as they are written."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        modes = [word.value for word in given if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        method = isinstance(node.func, ast.Attribute)
        if (name in ("open", "fdopen") and any(re.fullmatch("[rwxab+t]*[wxa+][rwxab+t]*", mode) for mode in modes)) or (
            method and name in ("write_text", "write_bytes", "mkstemp", "write_parquet", "savez", "to_csv")
        ):
            yield ast.unparse(node)


def test_one_module_alone_opens_files_to_write() -> None:
    source = Path(opcost.__file__).parent
    found = {
        str(path.relative_to(source)): calls
        for path in source.rglob("*.py")
        if (calls := list(writes(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert len(found.pop("core/files.py")) == 3
    assert found == {
        "recorders/measure.py": ["Path('/proc/self/clear_refs').write_text('5', encoding='ascii')"],
        "traces/ranks/__init__.py": ["self.frame.write_parquet(content)", "found.write_parquet(content)"],
    }


# -- logs and caches ---------------------------------------------------------------------------------------------------


def test_a_tensorboard_log_is_complete_or_not_there_nor_is_its_folder(report: Report, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="File too large"), full_disk():
        report.to_tensorboard(str(tmp_path / "new" / "log"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "log").mkdir()
    with pytest.raises(WriteError), full_disk():
        report.to_tensorboard(str(tmp_path / "log"))
    assert not list((tmp_path / "log").iterdir())


def test_visualize_says_why_there_is_no_log(opcost_command: Callable[..., Any], tmp_path: Path) -> None:
    with full_disk():
        done = opcost_command("visualize", DUMP, "--log_path", tmp_path / "log")
    assert done.code == 2, done.err
    assert "File too large" in done.err
    assert not (tmp_path / "log").exists()


def test_a_log_that_a_kill_left_unfinished_is_not_read_by_tensorboard(report: Report, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.io_wrapper import IsTensorFlowEventsFile

    assert IsTensorFlowEventsFile(report.to_tensorboard(str(tmp_path)))
    assert not IsTensorFlowEventsFile(str(tmp_path / f"{UNFINISHED}0123456789abcdef"))


def test_logs_of_one_second_stand_in_their_order(report: Report, tmp_path: Path) -> None:
    written = [report.to_tensorboard(str(tmp_path)) for _ in range(5)]
    assert sorted(written) == written


def test_a_cache_that_cannot_be_written_is_left_out_and_nothing_stays_of_it(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    from opcost.traces.ranks import reduce_ranks, trace_files

    def reduced() -> list[tuple[object, ...]]:
        return reduce_ranks([trace], workers=1, cache=folder).summary().rows()

    trace, folder = tmp_path / "rank0.json.gz", tmp_path / "kept"
    trace.write_bytes(TRACE.read_bytes())
    with full_disk():
        table = reduced()
    assert list(folder.iterdir()) == []
    assert reduced() == table
    assert len(list(folder.iterdir())) == 1
    (folder / f"{UNFINISHED}0123456789abcdef").write_text("half")
    assert list(trace_files([tmp_path])) == [trace]
    assert reduced() == table


def test_what_was_written_is_read_back(
    command: Callable[..., Any], opcost_command: Callable[..., Any], target: Path, report: Report, profile: Profile
) -> None:
    assert command("show -o x.json", target / "r.json").code == 0
    assert command("profile --layout opcost", target / "p.json").code == 0
    assert opcost.load_report(target / "r.json") == report
    assert opcost.read_profile(target / "p.json") == profile
    assert opcost_command("count", target / "r.json", "-o", target / "r.json").code == 0
    assert opcost.load_report(target / "r.json") == report
    assert json.loads((target / "p.json").read_text())["schema"] == "opcost.profile/1"


# -- standard output ---------------------------------------------------------------------------------------------------


def opcost_process(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    code = "from opcost.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stderr=subprocess.PIPE, text=True, encoding="utf-8", **options
    )


@pytest.mark.parametrize("words", [("count", "REPORT", "--format", "json"), ("analyze", "PROFILE"), ("rules",)])
def test_a_full_disk_behind_standard_output_is_reported(
    words: tuple[str, ...], report: Report, profile: Profile, tmp_path: Path
) -> None:
    report.save(tmp_path / "report.json")
    profile.save(tmp_path / "profile.json")
    places = {"REPORT": tmp_path / "report.json", "PROFILE": tmp_path / "profile.json"}
    with Path("/dev/full").open("w") as full:
        process = opcost_process(*(places.get(word, word) for word in words), stdout=full)
        _, err = process.communicate()
    assert process.returncode == 2
    assert err == "opcost: the output cannot be written: No space left on device\n"


def test_without_a_standard_output_nothing_fails(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "report.json")
    code = "from opcost.cli.main import main; main()"
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "{code}" count "$1" >&-', sys.executable, tmp_path / "report.json"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_of_few_letters_is_no_error(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "report.json")
    process = opcost_process(
        "count", tmp_path / "report.json", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.isascii()
    assert "\\" not in out
    assert "-----" in out


def test_a_process_that_is_terminated_leaves_nothing_unfinished(report: Report, target: Path) -> None:
    report.save(target / "report.json")
    ending = "import os, signal; os.fsync = lambda number: (os.kill(os.getpid(), signal.SIGTERM), None)[1]; "
    code = ending + "from opcost.cli.main import main; main()"
    words = [sys.executable, "-c", code, "count", target / "report.json", "-o", target / "report.json"]
    before = (target / "report.json").read_bytes()
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 143
    assert done.stderr == b""
    assert (target / "report.json").read_bytes() == before
    assert [path.name for path in target.iterdir()] == ["report.json"]
