"""Every error that opcost raises on purpose, and how names are written in messages.

Catch `OpcostError`, the root. A message says what was being done, to what, what was seen and what to do next. A plug-in that is
broken and was not requested is a `PluginWarning`.
"""

from collections.abc import Iterable, Sequence

LONG = 200  # characters of a name or a value that is quoted; a path is rarely longer
MANY = 8  # entries of one list that are named; the others are only counted


def shortened(text: str, limit: int = LONG) -> str:
    """The text itself, or its beginning and its end with the number of characters between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}… ({len(text) - head - tail:,} characters more) …{text[-tail:]}"


def some(words: Sequence[str], limit: int = MANY, *, kind: str = "") -> list[str]:
    """The words, or the first of them and `and 99,990 more`: no more than `limit` entries in all."""
    if len(words) <= limit:
        return list(words)
    more = f"{len(words) - limit + 1:,} more"
    return [*words[: limit - 1], f"and {more} {kind}".rstrip()]


def counted(number: int, word: str, plural: str = "") -> str:
    """`1 kernel`, `1,707 kernels`."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


# -- errors ------------------------------------------------------------------------------------------------------------


class OpcostError(Exception):
    """The root of all errors raised on purpose; `hint` says what to do next."""

    exit_code = 2
    of_update = False
    """Whether an optimizer raised it, for which no other inputs would help."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class SourceError(OpcostError):
    """The source exists but cannot be read or used."""


class UnknownSource(SourceError):
    """No front end reads this source."""


class AmbiguousSource(SourceError):
    """More than one front end claims this source."""


class Refused(SourceError, FileNotFoundError):
    """The source needs something that opcost never fetches, unpickles or runs.

    It is a missing file too: a library that knows how to do without one goes on.
    """


class InputError(OpcostError):
    """The inputs do not fit the model, or cannot be made from what was given."""


class ForwardError(OpcostError):
    """The user's model raised while it ran; `module` is the path where it happened."""

    def __init__(self, message: str, *, hint: str = "", module: str = "") -> None:
        super().__init__(message, hint=hint)
        self.module = module
        self.received: tuple[object, ...] = ()  # the shapes that the module received


class DataDependent(ForwardError):
    """The model needs a value (a float, a mask) that a count without data does not have."""


class StateError(OpcostError):
    """While it ran, the model changed something of the user's process that cannot be put back."""


class MissingFramework(OpcostError):
    """A framework or an extra that this source needs is not installed."""

    exit_code = 3


class BrokenPlugin(OpcostError):
    """A plug-in cannot be imported, lacks an attribute that its group requires, or failed at its task."""


class PluginWarning(UserWarning):
    """A plug-in is broken; everything else works without it."""


class RuleError(OpcostError):
    """A cost rule is wrong, or is registered twice."""


class GraphError(OpcostError):
    """A graph contradicts itself; the message names the first fault."""


class WriteError(OpcostError):
    """A file cannot be written; the old file is untouched."""


class BudgetExceeded(OpcostError, AssertionError):
    """A model exceeds its budget. It is an assertion too: a test that checks a budget has failed, and is not broken."""

    exit_code = 1


class UnknownName(OpcostError):
    """A name typed by the user is not known."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        known = sorted(known)
        near = nearest(name, known)
        meant = " or ".join(shortened(repr(known)) for known in near)
        listed = f"did you mean {meant}?" if near else f"known: {_listed(known)}"
        if near and what == "column" and not hint:  # every column may be the one that is wanted
            hint = f"columns: {_listed(known)}"
        super().__init__(f"unknown {what} {shortened(repr(name))}; {listed}", hint=hint)
        self.name = name
        self.near = near


def _listed(names: list[str]) -> str:
    """All names, unless there are too many to read."""
    if len(names) <= 60:
        return ", ".join(map(shortened, names)) or "none"
    return f"{', '.join(map(shortened, names[:20]))} and {len(names) - 20:,} more"


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names closest to a misspelt one, whatever their capitals, best first, at most three."""
    import difflib

    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.casefold(), candidate)
    return tuple(folded[near] for near in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.6))
