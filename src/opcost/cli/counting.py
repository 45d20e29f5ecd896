"""From what was typed to a report: used by every command that takes a SOURCE."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from opcost.cli.options import CountChoice
from opcost.cli.settings import parse_settings
from opcost.core.progress import working
from opcost.core.report import Report
from opcost.errors import OpcostError
from opcost.frontends.inputs import spelled_out
from opcost.frontends.options import Mode, usual_mode

if TYPE_CHECKING:
    from opcost.frontends.source import Source


def report_of(
    source: str | Source, choice: CountChoice, *, quiet: bool, data: Mapping[str, Any] | None = None
) -> Report:
    """The report of a SOURCE: read if it was saved, else counted. What the user's code prints goes to stderr.

    A source that was resolved before, with its settings, is not looked at again. `data` is what the library is told
    of input data, in place of `--input`.
    """
    from opcost.api import count, load_report
    from opcost.frontends.source import SavedReport, resolve

    name = source if isinstance(source, str) else source.label
    shapes, dtypes = spelled_out(list(choice.inputs) or None, None)
    arguments = parse_settings(choice.arguments, "--arg")
    with working(f"counting {name}", quiet=quiet), redirect_stdout(sys.stderr):
        found = resolve(source, parse_settings(choice.settings, "--set")) if isinstance(source, str) else source
        if isinstance(found, SavedReport):
            if choice != CountChoice() or data:
                raise OpcostError(
                    f"{name} is a saved report; options about counting do not apply to it",
                    hint="count the model again with these options",
                )
            return load_report(found.path)
        return count(
            found,
            kwargs=arguments,
            batch=choice.batch,
            tokens=choice.tokens,
            image=choice.image,
            dtype=choice.dtype,
            backward=choice.backward or choice.optimizer is not None,
            optimizer=choice.optimizer,
            real=choice.real,
            mode=mode_of(train=choice.train),
            causal=choice.causal,
            options=choice.frontend_options,
            **(data or {"shapes": shapes, "dtypes": dtypes}),
        )


def mode_of(*, train: bool | None) -> Mode | None:
    """What `--train` or `--eval` asks for; with neither, the library decides."""
    return None if train is None else usual_mode(training=train)
