"""The doors: count a model, read a saved report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcost.core.report import Report
    from opcost.frontends.options import CountOptions
    from opcost.rules.registry import Convention, Rule, Rules


def count(
    source: Any,
    inputs: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Any = None,
    dtypes: Any = None,
    backward: bool = False,
    optimizer: Any = None,
    real: bool = False,
    mode: str | None = None,
    causal: str = "full",
    rules: Mapping[str, Rule] | None = None,
) -> Report:
    """What a model costs.

    `source` is a model, or a string that names one: a file, `package.module:factory`, `timm:NAME`.
    `inputs`: a tuple holds the positional arguments, anything else is the one argument; `kwargs` the keyword arguments.
    `shapes` makes inputs instead: one shape, a list, or {name: shape}, with `dtypes` in the same form. With neither, the
    model is asked what it takes.

    `backward=True` adds the backward pass, `optimizer=True` (or a name of `torch.optim`) also the update. `real=True` runs
    the model on its own weights, for models whose control flow depends on float values. `mode` counts it as in "train" or
    "eval". `causal="half"` counts only the unmasked half of causal attention. `rules` prices operators that opcost
    does not know: {"library::operator": rule}.
    """
    from opcost.core.collector import without_collector
    from opcost.errors import UnknownName
    from opcost.frontends.options import CountOptions
    from opcost.rules import default_rules
    from opcost.rules.registry import Convention

    if causal not in ("full", "half"):
        raise UnknownName("value of causal", causal, ("full", "half"))
    options = CountOptions(
        inputs=inputs,
        kwargs=dict(kwargs or {}),
        shapes=shapes,
        dtypes=dtypes,
        backward=backward,
        optimizer=optimizer,
        real=real,
        mode=mode,
    )
    with without_collector():
        return _count(source, options, default_rules().with_rules(rules), Convention(causal=causal))


def _count(source: Any, options: CountOptions, rules: Rules, convention: Convention) -> Report:
    from opcost.analysis.price import price
    from opcost.frontends.registry import owner
    from opcost.frontends.source import ModelFile, SavedReport, resolve

    if isinstance(source, (str, Path)):
        resolved = resolve(str(source))
        if isinstance(resolved, SavedReport):
            return load_report(resolved.path)
        if isinstance(resolved, ModelFile):
            graph = resolved.frontend.load(resolved.path, options)
        else:
            model = resolved.build(real=options.real)
            graph = owner(model).load(model, options)
    else:
        graph = owner(source).load(source, options)
    return price(graph, rules, convention)


def load_report(path: str | Path) -> Report:
    """Read a report that was saved as `.json`."""
    from opcost.core.schema import load

    return load(path)
