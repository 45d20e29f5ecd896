"""`opcost --install-completion`, `opcost --show-completion`: what a shell completes after TAB."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from opcost.cli.options import parameter
from opcost.cli.saying import put, say
from opcost.core.writing import check_writable, write_text
from opcost.errors import InputError

Shell: TypeAlias = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = get_args(Shell)
ShellName = Annotated[Shell | None, parameter(help="Without it, the shell that this was started from.")]

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
    from cyclopts.completion.install import add_to_rc_file, get_default_completion_path

    chosen = shell or _shell()
    path = output or get_default_completion_path(chosen, "opcost")
    if output is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_writable(path)
    write_text(path, script(chosen))
    say(f"written  {path}")
    if output is None and chosen != "fish":
        add_to_rc_file(path, "opcost", chosen)
    say(f"{chosen} completes opcost in every shell that is started from now on")
    return 0


def show(shell: ShellName = None, /) -> int:
    """Print the script, to be read by the shell itself: source <(opcost --show-completion bash)."""
    put(script(shell or _shell()))
    return 0


def script(shell: Shell) -> str:
    """What the library makes of our commands; where it offers nothing, files are offered, for most sources are files."""
    from opcost.cli.main import app

    made = app().generate_completion(shell=shell)
    if shell == "bash":
        return made.replace("complete -F _opcost opcost", "complete -o bashdefault -o default -F _opcost opcost")
    return _ZSH_ARGUMENT.sub(r"\1:_files\2", made) if shell == "zsh" else made


def _shell() -> Shell:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    with suppress(ShellDetectionError):
        found = detect_shell()
        if found in SHELLS:
            return found
    raise InputError("nobody says which shell this is for", hint=f"name it: {', '.join(SHELLS)}")
