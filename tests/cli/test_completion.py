"""Shells complete commands, options, choices and files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opcost.cli.completion import SHELLS, script
from opcost.cli.main import COMMANDS

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: script(shell) for shell in SHELLS}


def completed(text: str, words: str, folder: Path) -> list[str]:
    """What bash offers after these words."""
    (folder / "script").write_text(text)
    *before, last = words.split(" ")
    asked = f"""
        source ./script
        COMP_WORDS=({" ".join(before)} "{last}"); COMP_CWORD={len(before)}
        _opcost; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_offers_commands_options_and_choices(scripts: dict[str, str], tmp_path: Path) -> None:
    text = scripts["bash"]
    assert set(completed(text, "opcost ", tmp_path)) == set(COMMANDS)
    assert completed(text, "opcost pred", tmp_path) == ["predict"]
    assert {"--max-macs", "--max-params"} <= set(completed(text, "opcost check net.py:Net --max-", tmp_path))
    assert completed(text, "opcost count net.py:Net --by ", tmp_path) == ["module", "op", "kind", "type"]
    assert completed(text, "opcost --install", tmp_path) == ["--install-completion"]


def test_files_are_offered_where_nothing_else_is(scripts: dict[str, str]) -> None:
    assert "complete -o bashdefault -o default -F _opcost opcost" in scripts["bash"]
    sources = [line for line in scripts["zsh"].splitlines() if "'1:path/to/file.py" in line]
    assert len(sources) >= 4
    assert all(":_files'" in line for line in sources)
    assert "complete -c opcost -f\n" not in scripts["fish"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_read_its_script(scripts: dict[str, str], shell: str, tmp_path: Path) -> None:
    assert all(command in scripts[shell] for command in COMMANDS)
    if (found := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not here")
    (tmp_path / "script").write_text(scripts[shell])
    subprocess.run([found, "-n", tmp_path / "script"], check=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_it_is_installed_where_the_shell_looks(opcost_command: Command, home: Path) -> None:
    for shell in SHELLS:
        done = opcost_command("--install-completion", "--shell", shell)
        assert done.code == 0, done.err
        path = Path(done.out.splitlines()[0].removeprefix("written  "))
        assert path.is_relative_to(home)
        assert path.read_text() == script(shell)
    asked = "source ~/.bashrc; complete -p opcost"
    done = subprocess.run(["bash", "-c", asked], env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    assert "_opcost" in done.stdout


def test_where_somebody_keeps_their_settings_is_heeded(
    opcost_command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.setenv(name, str(home / name))
    for shell in SHELLS:
        assert opcost_command("--install-completion", "--shell", shell).code == 0
    assert (home / "XDG_DATA_HOME/bash-completion/completions/opcost").exists()
    assert (home / "XDG_CONFIG_HOME/fish/completions/opcost.fish").exists()
    assert "fpath=" in (home / "ZDOTDIR/.zshrc").read_text()
    assert not (home / ".zshrc").exists()


HELD = b"export A=1\nalias l='ls \xff'"  # as people have it: not all of it UTF-8, and no newline at its end


@pytest.mark.parametrize(("shell", "name"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_a_startup_file_keeps_all_that_it_had_and_gets_one_line(
    opcost_command: Command, home: Path, shell: str, name: str
) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / name).write_bytes(HELD)
    (home / name).symlink_to(home / "dotfiles" / name)
    for _ in range(2):
        assert opcost_command("--install-completion", "--shell", shell).code == 0
    now = (home / name).read_bytes()
    added = now.replace(HELD, b"").strip()
    assert HELD in now
    assert added.count(b"\n") == 0
    assert b"opcost" in added
    assert (home / name).is_symlink()


@pytest.mark.parametrize(("held", "told"), [("autoload -Uz compinit\ncompinit\n", False), ("export A=1\n", True)])
def test_zsh_is_told_to_look_only_where_it_does_not(opcost_command: Command, home: Path, held: str, told: bool) -> None:
    (home / ".zshrc").write_text(held)
    opcost_command("--install-completion", "--shell", "zsh")
    added = (home / ".zshrc").read_text().removesuffix(held)
    assert added.startswith("fpath=(")
    assert ("autoload -Uz compinit && compinit" in added) is told


def test_a_file_of_somebodys_own_is_not_replaced(opcost_command: Command, home: Path) -> None:
    mine = home / ".bashrc"
    mine.write_bytes(HELD)
    done = opcost_command("--install-completion", "--shell", "bash", "--output", str(mine))
    assert done.code == 2
    assert "was not written by opcost" in done.err
    own = home / ".config/fish/completions/opcost.fish"
    own.parent.mkdir(parents=True)
    own.write_text("complete -c opcost -a mine\n")
    assert opcost_command("--install-completion", "--shell", "fish").code == 2
    assert mine.read_bytes() == HELD
    assert own.read_text() == "complete -c opcost -a mine\n"


def test_it_is_written_to_a_file_of_ones_own(
    opcost_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    done = opcost_command("--install-completion", "--shell", "bash", "--output", str(tmp_path / "mine"))
    assert done.code == 0, done.err
    assert (tmp_path / "mine").read_text() == script("bash")
    assert not (tmp_path / "home").exists()


def test_a_shell_that_nobody_knows_is_asked_for(opcost_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from cyclopts.completion import detect

    def unknown() -> str:
        raise detect.ShellDetectionError

    monkeypatch.setattr(detect, "detect_shell", unknown)
    done = opcost_command("--show-completion")
    assert done.code == 2
    assert "name it: bash, zsh, fish" in done.err
    assert opcost_command("--show-completion", "fish").out == script("fish")
