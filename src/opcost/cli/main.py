"""The `opcost` command: the list of commands, and what becomes of errors.

Exit codes: 0 fine · 1 a budget is exceeded, a difference found or nothing fits · 2 bad usage or an unreadable source · 3 a
framework is missing · 70 a fault of opcost itself · 130 interrupted · 141 the reader of the output went away · 143 ended by a
signal.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING, Any

from opcost.cli.printing import escape_unknown, say, warn
from opcost.core.escaping import encodable_text
from opcost.core.files import STDIN, keep_pipes
from opcost.core.progress import ProgressThread, stopped, stopping
from opcost.core.tracebacks import keep_whole, raised_outside
from opcost.errors import OpcostError, PluginWarning
from opcost.version import __version__

if TYPE_CHECKING:
    from cyclopts import App

INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

TYPED: ContextVar[Sequence[str]] = ContextVar("TYPED", default=())  # the words of the command that is running
COMMANDS = {
    "count": ("models", "What a model costs: parameters, MACs, FLOPs, activations, bytes, peak memory."),
    "profile": ("profile", "Where a model's time goes: run it and measure every operator."),
    "predict": ("models", "How long a model takes on a device, without running it."),
    "advise": ("models", "What would make a model faster or smaller on a device."),
    "fit": ("models", "The largest batch, or other size, that fits into memory."),
    "sweep": ("models", "Cost, memory and latency at many sizes."),
    "plan": ("models", "Which layout of many GPUs trains a model fastest, and which fit."),
    "calibrate": ("profile", "Time single operators on the device at hand, for predict."),
    "mfu": ("models", "How much of a device's peak a step uses."),
    "scan": ("models", "What a checkpoint holds: its tensors, their parameters and bytes."),
    "compare": ("comparing", "What models cost side by side, what differs, or where two profiles differ."),
    "check": ("comparing", "Fail if a model costs more than a budget."),
    "view": ("view", "A page in the browser: of a model, a profile, a checkpoint, a comparison."),
    "analyze": ("analyze", "Where the time of a profile or trace goes."),
    "visualize": ("models", "Statistics and a TensorBoard log, with the flags of MegEngine's network_visualize."),
    "rules": ("about", "The cost rules and their formulas."),
    "doctor": ("about", "Versions, frameworks, plug-ins, and what is missing."),
}
"""Each command: its module in `opcost.cli`, where a function has its name, and its help. It is imported when it is called."""
WIPE = "\r\x1b[K"  # clears a line of progress


class Interrupts:
    """Says once what Ctrl-C stops, at once, whatever runs.

    Python handles signals between two of its own steps, and a kernel or a library may take seconds for one. So a thread of its
    own waits for the signal and prints the message; the exception follows when Python gets to it.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._said = threading.Lock()

    def watch(self) -> None:
        """From now on a thread answers interrupts."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        ProgressThread(target=self._wait, args=(reader,), name="opcost-interrupts", daemon=True).start()

    def _wait(self, reader: int) -> None:
        while found := os.read(reader, 1):
            if found[0] == signal.SIGINT:
                self.say()

    def say(self, what: str = "") -> None:
        """Print what was stopped, unless that was printed before."""
        words = what or stopped() or f"opcost {self._command}".rstrip() + " was stopped"
        if not self._said.acquire(blocking=False):
            return
        stopping.set()
        wipe = WIPE if sys.stderr.isatty() else ""
        sys.stderr.write(f"{wipe}opcost: {encodable_text(sys.stderr, f'interrupted: {words}')}\n")
        sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    # Open a stream that the caller closed as /dev/null: else the next file or pipe would take its number
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = StringIO()
    if sys.stderr is None:
        sys.stderr = StringIO()
    escape_unknown()
    # Nearly all that imports make stays: looking through it again and again takes a tenth of the time and frees nothing.
    gc.set_threshold(1_000_000, 50, 50)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # clean up what is unfinished
    words = sys.argv[1:] if argv is None else argv
    interrupts = Interrupts(" ".join(words[:1]))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        interrupts.watch()
    sys.exit(run(words, interrupts))


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
    keep_whole.set(debug)
    try:
        with _plugin_warnings(), keep_pipes():
            code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except (KeyboardInterrupt, Exception) as exc:
        if debug:
            raise
        return _failed(exc, interrupts)
    return INTERRUPTED if stopping.is_set() else code


def _failed(exc: BaseException, interrupts: Interrupts) -> int:
    """Print what went wrong; the exit code."""
    if isinstance(exc, KeyboardInterrupt):
        interrupts.say(*exc.args[:1])
        return INTERRUPTED
    code = OpcostError.exit_code
    if isinstance(exc, OpcostError):
        if raised_outside(exc.__cause__):
            exc.hint = "; ".join(filter(None, (exc.hint, "--debug shows where it was raised")))
        code, message = exc.exit_code, "\n".join((str(exc), *(f"  {note}" for note in getattr(exc, "__notes__", ()))))
    elif isinstance(exc, MemoryError):
        hint = "a damaged file may need any amount; give the process more memory if the file is sound"
        message = f"there is not enough memory for this\n  hint: {hint}"
    elif isinstance(exc, OSError) and exc.errno in DISK_FULL:  # of stdout; a file raises `WriteError`
        _drop_output()
        message = f"the output cannot be written: {exc.strerror or exc}"
    else:
        code = INTERNAL_ERROR
        message = f"{type(exc).__name__}: {exc}\n  hint: this should not happen; run with --debug to see where it did"
    warn(message)
    return code


@contextmanager
def _plugin_warnings() -> Iterator[None]:
    """A broken plug-in is one line; other warnings are the frameworks' own and shown as always, but for one."""
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
        code = app()(_named(words), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as exc:
        exc.verbose = False
        command = next((word for word in words if word in COMMANDS), "")
        usage = f"opcost {command} --help" if command else "opcost --help"
        raise OpcostError(str(exc).strip(), hint=f"see `{usage}`") from exc
    if not {"--help", "-h"}.isdisjoint(words):
        for line in further_help(next((word for word in words if word in COMMANDS), "")):
            say(line)
    return code if isinstance(code, int) else 0


def _named(words: list[str]) -> list[str]:
    """The words with names for what the library below takes for something else.

    `-` is the standard input wherever something is read. `--optimizer` may be given without a name; a plain word after it is its
    name, for a source is never a plain word.
    """
    named = list(words)
    for before, (place, word), after in zip(["", *words], enumerate(words), [*words[1:], ""], strict=False):
        if word == "-" and before not in ("-o", "--output"):
            named[place] = STDIN
        elif word == "--optimizer" and not after.isidentifier():
            named[place] = "--optimizer=sgd"
    return named


def app() -> App:
    """The commands; none of their modules is imported before it is called."""
    from cyclopts import App, Parameter

    commands = App(
        name="opcost", help="What a neural network costs, and where its time goes.", help_format="plaintext",
        help_epilogue="Every command takes --debug, which shows where an error came from.", version=__version__,
        default_parameter=Parameter(negative="", show_default=False), suppress_keyboard_interrupt=False,
    )  # fmt: skip
    for place, (name, (module, summary)) in enumerate(COMMANDS.items()):
        commands.command(f"opcost.cli.{module}:{name}", name=name, help=summary, sort_key=place)
    commands.register_install_completion_command(help="Let bash, zsh or fish complete commands and options.")
    return commands


def _drop_output() -> None:
    """Python flushes stdout at exit, which would fail without a reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- what `--help` adds to the options of a command: examples, and known names ----------------------------------------------

ON_DEVICES = ("count", "predict", "plan", "advise", "fit", "sweep", "mfu", "check", "compare", "view", "analyze")
"""Commands about a device, which need not be present."""
WIDTH = 100


def examples() -> dict[str, list[str]]:
    """The examples of each command, which is the second word of each; the first paragraph is of all of them."""
    first, *others = (files(__package__) / "examples.txt").read_text(encoding="utf-8").split("\n\n")
    return {"": first.splitlines(), **{lines.split()[1]: lines.splitlines() for lines in others}}


def further_help(command: str) -> Iterator[str]:
    """Lines that follow the options: examples of the command, and the columns, kinds and quantities that it takes."""
    from textwrap import wrap

    yield ""
    yield "Examples:"
    yield from (f"  {example}" for example in examples().get(command, ()))
    for title, names in _names(command):
        yield ""
        yield f"{title}:"
        yield from wrap(", ".join(names), WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _names(command: str) -> Iterator[tuple[str, Sequence[str]]]:
    if command == "count":
        from opcost.views.report import EVERY_BY, columns_of

        for by in EVERY_BY:
            yield f"Columns with --by {by}, for --columns and --sort", list(columns_of(by, 0))
    elif command == "scan":
        from opcost.views.scan import scan_columns

        yield "Columns, for --columns and --sort", list(scan_columns("tensor"))
    elif command == "analyze":
        from opcost.core.kinds import KINDS
        from opcost.core.profile import Answer
        from opcost.views.profile import answer_columns

        empty = Answer(meta={}, side="device", keys=(), lines=())
        yield "Columns, for --columns and --sort", list(answer_columns(empty))
        yield "Kinds, for --kind and --where", sorted(KINDS)
    elif command in ("check", "compare"):
        from opcost.core.limits import QUANTITIES

        yield "Quantities", list(QUANTITIES)
    elif command == "rules":
        from opcost.rules import default_rules

        yield "Rules", sorted(default_rules())
    if command in ON_DEVICES:
        from opcost.core.devices import DEVICES

        yield "Devices, for --device", list(DEVICES)
