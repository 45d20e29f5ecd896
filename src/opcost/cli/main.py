"""The `opcost` command: the list of commands, and what becomes of errors.

Exit codes: 0 fine · 1 a budget is exceeded, a difference found or nothing fits · 2 bad usage or an unreadable source · 3 a
framework is missing · 70 a fault of opcost itself · 130 interrupted · 141 the reader of the output went away · 143 ended by a
signal.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import StringIO
from types import FrameType
from typing import TYPE_CHECKING, Any

from opcost.cli.interrupt import Interrupts
from opcost.cli.saying import escape_unknown, say, warn
from opcost.core.progress import stopping
from opcost.core.reading import STDIN, pipes_kept
from opcost.errors import OpcostError, PluginWarning
from opcost.version import __version__

if TYPE_CHECKING:
    from cyclopts import App

INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

TYPED: ContextVar[Sequence[str]] = ContextVar("TYPED", default=())
"""The words of the command that is running."""
COMMANDS = {
    "count": "What a model costs: parameters, MACs, FLOPs, activations, bytes, peak memory.",
    "profile": "Where a model's time goes: run it and measure every operator.",
    "predict": "How long a model would take on a device, without running it.",
    "fit": "The largest batch, or other size, that fits into memory.",
    "sweep": "Cost, memory and latency at many sizes.",
    "calibrate": "Time single operators on the device at hand, for predict.",
    "mfu": "How much of a device's peak a step uses.",
    "scan": "What a checkpoint holds: its tensors, their parameters and bytes.",
    "show": "Print or convert a report that was saved as JSON.",
    "check": "Fail if a model costs more than a budget.",
    "badge": "Params, MACs and FLOPs in one line, or as a badge.",
    "view": "Anything as a page in a browser: a model, a profile, a checkpoint, a comparison.",
    "analyze": "Where the time of a profile or trace goes.",
    "visualize": "Statistics and a TensorBoard log, with the options of MegEngine's network_visualize.",
    "compare": "What several models cost, side by side.",
    "diff": "What differs between two models, saved reports or profiles.",
    "rules": "The cost rules and their formulas.",
    "doctor": "Versions, frameworks, plug-ins, and what is missing.",
}
"""Each command lives in `opcost.cli.<name>` as a function of the same name, imported when it is called."""


COMPLETION = {
    "install": "Let bash, zsh or fish complete commands, options and files.",
    "show": "Print the script that does it.",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    _open_standard_streams()
    escape_unknown()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)
    words = sys.argv[1:] if argv is None else argv
    interrupts = Interrupts(" ".join(words[:1]))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        interrupts.watch()
    sys.exit(run(words, interrupts))


def _open_standard_streams() -> None:
    """Where the caller closed one, nothing is read or written there: else the next file or pipe would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = StringIO()
    if sys.stderr is None:
        sys.stderr = StringIO()


def run(argv: Sequence[str], interrupts: Interrupts | None = None) -> int:
    """Run one command; errors become one message on stderr and an exit code."""
    words = [word for word in argv if word != "--debug"]
    debug = len(words) != len(argv)
    if words in (["--version"], ["-V"]):  # answered before the command-line library is loaded
        say(__version__)
        return 0
    stopping.clear()
    interrupts = interrupts or Interrupts(" ".join(words[:1]))
    TYPED.set(words)
    try:
        with _plugin_warnings(), pipes_kept():
            code = _dispatch(words)
        sys.stdout.flush()
    except OpcostError as exc:
        if debug:
            raise
        return _fail(str(exc), exc.exit_code, notes=getattr(exc, "__notes__", ()))
    except KeyboardInterrupt as exc:
        if debug:
            raise
        interrupts.say(*exc.args[:1])
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except MemoryError:
        if debug:
            raise
        hint = "a damaged file may ask for any amount; give the process more memory if the file is sound"
        return _fail(f"there is not enough memory for this\n  hint: {hint}", OpcostError.exit_code)
    except Exception as exc:
        if debug:
            raise
        if isinstance(exc, OSError) and exc.errno in DISK_FULL:  # files are not meant: for them there is `WriteError`
            _drop_output()
            return _fail(f"the output cannot be written: {exc.strerror or exc}", OpcostError.exit_code)
        message = f"{type(exc).__name__}: {exc}\n  hint: this should not happen; run with --debug to see where it did"
        return _fail(message, INTERNAL_ERROR)
    return INTERRUPTED if stopping.is_set() else code


@contextmanager
def _plugin_warnings() -> Iterator[None]:
    """Tell of a broken plug-in in one line; other warnings are the frameworks' own and are shown as ever, but for one."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # PyTorch's; nothing here needs it
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **further: Any) -> None:
            if issubclass(category, PluginWarning):
                warn(str(message))
            else:
                usual(message, category, *place, **further)

        warnings.showwarning = show
        yield


def _dispatch(words: list[str]) -> int:
    from cyclopts import CycloptsError

    try:
        code = app()(
            _name_optimizer(_name_stdin(words)), exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as exc:
        exc.verbose = False
        command = next((word for word in words if word in COMMANDS), "")
        usage = f"opcost {command} --help" if command else "opcost --help"
        raise OpcostError(str(exc).strip(), hint=f"see `{usage}`") from exc
    if not {"--help", "-h"}.isdisjoint(words):
        from opcost.cli.help import further_help

        for line in further_help(next((word for word in words if word in COMMANDS), "")):
            say(line)
    return code if isinstance(code, int) else 0


def _name_stdin(words: list[str]) -> list[str]:
    """`-` is the standard input wherever something is read; the library below takes it for an option without a name."""
    before = ["", *words]
    return [
        STDIN if word == "-" and before[place] not in ("-o", "--output") else word for place, word in enumerate(words)
    ]


def _name_optimizer(words: list[str]) -> list[str]:
    """`--optimizer` may stand alone; a plain word after it is its name, for a source is never a plain word."""
    named = list(words)
    for place, word in enumerate(words):
        if word == "--optimizer" and not "".join(words[place + 1 : place + 2]).isidentifier():
            named[place] = "--optimizer=sgd"
    return named


def app() -> App:
    """The commands; none of their modules is imported before it is called."""
    from cyclopts import App, Parameter

    commands = App(
        name="opcost",
        help="What a neural network costs, and where its time goes.",
        help_format="plaintext",
        help_epilogue="Every command takes --debug, which shows where an error came from.",
        version=__version__,
        default_parameter=Parameter(negative="", show_default=False),
        suppress_keyboard_interrupt=False,
    )
    for place, (name, summary) in enumerate(COMMANDS.items()):
        commands.command(f"opcost.cli.{name}:{name}", name=name, help=summary, sort_key=place)
    for name, summary in COMPLETION.items():
        commands.command(f"opcost.cli.completion:{name}", name=f"--{name}-completion", help=summary)
    return commands


def _drop_output() -> None:
    """Python flushes stdout at exit; without somewhere to flush to, it would complain after all."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(number: int, frame: FrameType | None) -> None:
    """When asked to end, clean up what is unfinished first."""
    sys.exit(128 + number)


def _fail(message: str, code: int, notes: Sequence[str] = ()) -> int:
    warn("\n".join((message, *(f"  {note}" for note in notes))))
    return code
