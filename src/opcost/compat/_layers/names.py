"""The names of a model's modules: the first name of each, its owners, and who was running when an operator ran."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getattr_static

from torch import nn

from opcost.core.report import Report
from opcost.frontends.torch.models.unwrap import unwrap

_IDLE = (nn.Module, nn.ModuleList, nn.ModuleDict, nn.Identity)


class Names:
    """Module names; where one module stands under several, the first is the one that results go by."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: dict[str, nn.Module] = {}
        """Every module under every name."""
        self._canonical: dict[str, str] = {}
        self.first: list[str] = []
        """One name for every module, in definition order."""
        known: dict[int, str] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            self.modules[name] = module
            if id(module) not in known:
                known[id(module)] = name
                self.first.append(name)
            self._canonical[name] = known[id(module)]
        self._stem = known[id(unwrap(model))]
        """Where the model that is counted stands in its wrapper; empty without one."""

    def canonical(self, name: str) -> str:
        try:
            return self._canonical[name]
        except KeyError:
            raise KeyError("Requested module name is not among the descendants of the analyzed model.") from None

    def registered(self, path: str) -> str:
        """The name of the module at a path of a report; a module that is not registered counts as its caller."""
        full = ".".join(filter(None, (self._stem, path)))
        while full not in self._canonical:
            full = full.rpartition(".")[0]
        return full

    def nearest(self, path: str) -> str:
        """The canonical name of the module at a path of a report."""
        return self._canonical[self.registered(path)]

    def owners(self, path: str) -> set[str]:
        """A module and all that it is part of."""
        return set(self.lineage(self.nearest(path)))

    def lineage(self, name: str) -> Iterator[str]:
        """A module's name and those of all that it is part of; a name with a dot in it may have no module above."""
        return (above for above in lineage(name) if above in self.modules)

    def is_callable(self, name: str) -> bool:
        """Whether the module has a forward of its own that does something; containers are not meant to be called."""
        forward = getattr_static(type(self.modules[name]), "forward")
        return all(forward is not getattr_static(kind, "forward") for kind in _IDLE)


def lineage(name: str) -> Iterator[str]:
    """A module's name and those of all that it is part of, the root last."""
    while name:
        yield name
        name = name.rpartition(".")[0]
    yield ""


def callers(report: Report) -> list[tuple[str, ...]]:
    """For every row the paths of the modules that were running, the outermost first."""
    running: list[tuple[str, ...]] = []
    open_calls: list[tuple[int, str]] = []
    calls = sorted(report.calls, key=lambda call: call.first)
    upcoming = 0
    for row in range(len(report.rows)):
        while open_calls and open_calls[-1][0] <= row:
            open_calls.pop()
        while upcoming < len(calls) and calls[upcoming].first <= row:
            if calls[upcoming].end > row:
                open_calls.append((calls[upcoming].end, calls[upcoming].path))
            upcoming += 1
        running.append(tuple(path for _, path in open_calls))
    return running
