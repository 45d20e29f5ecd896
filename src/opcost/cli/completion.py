"""`opcost --install-completion`, `opcost --show-completion`: what a shell completes after TAB."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from opcost.cli.options import parameter
from opcost.cli.saying import put, say
from opcost.core.writing import check_writable, write_bytes, write_text
from opcost.errors import InputError

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = get_args(Shell)
ShellName = Annotated[Shell | None, parameter(help="Without it, the shell that this was started from.")]
MARK = "written by opcost --install-completion"
"""By this what we wrote is known again."""

_ZSH_ARGUMENT = re.compile(r"^(\s+'(?:\d+|\*):(?:[^':]|\\:)+)(' \\?)$", re.MULTILINE)
"""An argument for which zsh is told nothing that it could offer."""


def install(
    *,
    shell: ShellName = None,
    output: Annotated[
        Path | None, parameter(metavar="FILE", help="Where the script goes. Without it, where the shell looks for it.")
    ] = None,
) -> int:
    """Let the shell complete commands, options and files: writes a script, and for bash and zsh a line into the startup file."""
    chosen = shell or _shell()
    path = output or _home(chosen)
    _check_ours(path)
    if output is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_writable(path)
    write_text(path, script(chosen))
    say(f"written  {path}")
    if output is not None:
        return 0
    if (startup := _STARTUP.get(chosen)) is not None:
        _begin(*startup(path))
    say(f"{chosen} completes opcost in every shell that is started from now on")
    return 0


def _home(shell: Shell) -> Path:
    """Where the shell looks for what it completes, or is told to by its startup file."""
    if shell == "bash":
        return _folder("XDG_DATA_HOME", ".local/share") / "bash-completion/completions/opcost"
    if shell == "fish":
        return _folder("XDG_CONFIG_HOME", ".config") / "fish/completions/opcost.fish"
    return _folder("ZDOTDIR", "") / ".zsh/completions/_opcost"


def _folder(variable: str, usual: str) -> Path:
    told = os.environ.get(variable)
    return Path(told) if told else Path.home() / usual


def _check_ours(path: Path) -> None:
    """Raise where the file is somebody's own: only what was written here before is replaced."""
    if path.is_file() and MARK.encode() not in path.read_bytes():
        raise InputError(
            f"{path} is there already and was not written by opcost",
            hint="name another file with --output, or let the shell read it: source <(opcost --show-completion bash)",
        )


def _bash_startup(path: Path) -> tuple[Path, Callable[[bytes], bytes]]:
    line = f'[ -f "{path}" ] && . "{path}"'

    def with_line(held: bytes) -> bytes:
        return held + (b"" if not held or held.endswith(b"\n") else b"\n") + f"{line}  # {MARK}\n".encode()

    return Path.home() / ".bashrc", with_line


def _zsh_startup(path: Path) -> tuple[Path, Callable[[bytes], bytes]]:
    """Before the rest: zsh must know the folder when it looks for completions, and looks only where it is told to."""
    line = f'fpath=("{path.parent}" $fpath)'

    def with_line(held: bytes) -> bytes:
        looks = b"compinit" in held or b"oh-my-zsh" in held
        return f"{line}{'' if looks else '; autoload -Uz compinit && compinit'}  # {MARK}\n".encode() + held

    return _folder("ZDOTDIR", "") / ".zshrc", with_line


_STARTUP = {"bash": _bash_startup, "zsh": _zsh_startup}


def _begin(path: Path, with_line: Callable[[bytes], bytes]) -> None:
    """Add a line to a startup file, unless it is there; all else in it stays, byte for byte."""
    held = path.read_bytes() if path.exists() else b""
    if MARK.encode() not in held:
        write_bytes(path, with_line(held))
        say(f"added to {path}")


def show(shell: ShellName = None, /) -> int:
    """Print the script, to be read by the shell itself: source <(opcost --show-completion bash)."""
    put(script(shell or _shell()))
    return 0


def script(shell: Shell) -> str:
    """What the library makes of our commands; where it offers nothing, files are offered, for most sources are files."""
    from opcost.cli.main import app

    made = app().generate_completion(shell=shell)
    if shell == "bash":
        made = made.replace("complete -F _opcost opcost", "complete -o bashdefault -o default -F _opcost opcost")
    elif shell == "zsh":
        made = _ZSH_ARGUMENT.sub(r"\1:_files\2", made)
    return f"{made.rstrip()}\n# {MARK}\n"


def _shell() -> Shell:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    with suppress(ShellDetectionError):
        found = detect_shell()
        if found in SHELLS:
            return found
    raise InputError("nobody says which shell this is for", hint=f"name it: {', '.join(SHELLS)}")
