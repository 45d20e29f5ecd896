"""The modules of a model: their names, and the model's repr with more words at each of them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from inspect import getattr_static
from typing import Any

import torch
from torch import nn

from opcost.core.escaping import printable
from opcost.frontends.torch.models.unwrap import unwrap

_IDLE = (nn.Module, nn.ModuleList, nn.ModuleDict, nn.Identity)


class Names:
    """Module names; results of a module with several names are listed under the first."""

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
        """The name of the counted model in its wrapper; empty without one."""

    def canonical(self, name: str) -> str:
        if name not in self._canonical:
            raise KeyError("Requested module name is not among the descendants of the analyzed model.")
        return self._canonical[name]

    def registered(self, path: str) -> str:
        """The name of the module at a path of a report; a module that is not registered counts as its caller."""
        full = ".".join(filter(None, (self._stem, path)))
        while full not in self._canonical:
            full = full.rpartition(".")[0]
        return full

    def nearest(self, path: str) -> str:
        """The canonical name of the module at a path of a report."""
        return self._canonical[self.registered(path)]

    def lineage(self, name: str) -> Iterator[str]:
        """A module's name and those of all that it is part of; a name with a dot in it may have no module above."""
        return (above for above in lineage(name) if above in self.modules)

    def inside(self, name: str, kinds: Collection[type]) -> bool:
        """Whether a module, or one that it is part of, is of one of these classes."""
        return any(type(self.modules[above]) in kinds for above in self.lineage(name))

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


def with_below(own: Mapping[str, int | float]) -> Counter[str]:
    """Each module's own number with those of all modules below it, by name."""
    total: Counter[str] = Counter()
    for name, number in own.items():
        for above in lineage(name):
            total[above] += number  # type: ignore[assignment]
    return total


def joined(path: str, name: str) -> str:
    """The path of a child."""
    return f"{path}.{name}" if path else name


def parameter_elements(module: nn.Module, *, trainable: bool = False) -> int:
    """Elements of a module's distinct parameters, or of those that receive gradients."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trainable)


def repr_with(model: nn.Module, words: Callable[[str, str], str]) -> str:
    """The model's repr where `words(name, extra_repr)` takes the place of every module's `extra_repr`."""
    return printable(repr(_double(model, "", words)), keep="\n")


def _double(module: nn.Module, name: str, words: Callable[[str, str], str]) -> Any:
    """A module that looks like this one with another `extra_repr`; the user's stays as it is."""
    text = words(name, module.extra_repr())
    scripted = isinstance(module, torch.jit.ScriptModule)  # what is in it is not shown
    double = nn.Module() if scripted else object.__new__(type(module))
    if scripted:
        double.__dict__["_get_name"] = lambda: module.original_name
    else:
        children = module._modules  # noqa: SLF001 - named_children leaves out shared and absent ones
        doubles = {key: child and _double(child, joined(name, key), words) for key, child in children.items()}
        double.__dict__.update(module.__dict__, _modules=doubles)
    double.__dict__["extra_repr"] = lambda: text
    return double


def annotated_repr(
    module: nn.Module, note: Callable[[str, nn.Module], str], *, behind: bool = False, name: str = ""
) -> list[str]:
    """The lines of a model's repr with a note inside each module's brackets, or behind them."""
    text = note(name, module)
    inside = (module.extra_repr(),) if behind else (module.extra_repr(), text)
    own = [printable(line) for part in inside if part for line in part.split("\n")]
    nested: list[str] = []
    for key, child in module._modules.items():  # noqa: SLF001 - named_children leaves out shared and absent ones
        if child is None and behind:
            continue
        lines = ["None"] if child is None else annotated_repr(child, note, behind=behind, name=joined(name, key))
        nested += [f"({printable(key)}): {lines[0]}", *lines[1:]]
    title, end = printable(module._get_name()), f"){text}" if behind else ")"  # noqa: SLF001 - the name in its repr
    if not nested and len(own) <= 1:
        return [f"{title}({''.join(own)}{end}"]
    return [f"{title}(", *(f"  {line}" for line in (*own, *nested)), end]
