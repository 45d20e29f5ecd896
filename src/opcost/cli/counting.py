"""From what was typed to a report: used by every command that takes a SOURCE."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from opcost.cli.inputs import InputSpec, parse_input, parse_settings
from opcost.cli.options import CountChoice
from opcost.core.progress import working
from opcost.core.report import Report
from opcost.errors import InputError, OpcostError
from opcost.frontends.options import Mode, usual_mode

if TYPE_CHECKING:
    from opcost.frontends.source import Source


def report_of(source: str | Source, choice: CountChoice, *, quiet: bool, data: Sequence[InputSpec] = ()) -> Report:
    """The report of a SOURCE: read if it was saved, else counted. What the user's code prints goes to stderr.

    A source that was resolved before, with its settings, is not looked at again. `data` is what is known of input data, in
    place of `--input`.
    """
    from opcost.api import count, load_report
    from opcost.frontends.source import SavedReport, resolve

    name = source if isinstance(source, str) else source.label
    specs = [*data] or [parse_input(text) for text in choice.inputs]
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
            backward=choice.backward or choice.optimizer is not None,
            optimizer=choice.optimizer,
            real=choice.real,
            mode=mode_of(train=choice.train),
            causal=choice.causal,
            options=choice.frontend_options,
            **shapes_of(specs),
        )


def mode_of(*, train: bool | None) -> Mode | None:
    """What `--train` or `--eval` asks for; with neither, the library decides."""
    return None if train is None else usual_mode(training=train)


def shapes_of(specs: list[InputSpec]) -> dict[str, Any]:
    """The `shapes` and `dtypes` of `opcost.count`: by name if the inputs have names, else by position."""
    if not specs:
        return {}
    named = [spec for spec in specs if spec.name]
    if not named:
        return {"shapes": [spec.shape for spec in specs], "dtypes": [spec.dtype or None for spec in specs]}
    if len(named) != len(specs):
        raise InputError("some inputs have a name and some have none", hint="name all of them, or none")
    if len({spec.name for spec in specs}) != len(specs):
        raise InputError("two inputs have the same name")
    return {
        "shapes": {spec.name: spec.shape for spec in specs},
        "dtypes": {spec.name: spec.dtype for spec in specs if spec.dtype},
    }
