"""Scripted and traced modules, whose submodules are called by PyTorch's interpreter, where nobody sees it.

The calls are told by two operators of our own, written into a copy of the module's code around each call, which is put in place
there. The module's own code stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, reduce
from typing import Any

import torch

_METHOD_CALL = "prim::CallMethod"
_SCHEMAS = {"enter": "enter(str path, Tensor[] given) -> ()", "leave": "leave(Tensor[] made) -> ()"}


class Markers:
    """The operators that tell of a call: `enter` with the path below the caller, and `leave`."""

    def __init__(self) -> None:
        self._library = torch.library.Library("opcost", "FRAGMENT")
        for name, schema in _SCHEMAS.items():
            self._library.define(schema)
            self._library.impl(name, lambda *_: None, "CompositeExplicitAutograd")
        self.enter = torch.ops.opcost.enter.default
        self.leave = torch.ops.opcost.leave.default


@cache
def markers() -> Markers:
    """The operators, made when the first scripted module is met."""
    return Markers()


def marked(module: torch.jit.ScriptModule) -> Callable[..., Any] | None:
    """What a call of a scripted module runs, with its submodules' calls marked; None: it has none, or they cannot be."""
    if not len(module._modules) or _has_hooks(module):
        return None
    try:
        markers()
        method = module._c._get_method("forward")
        run = torch._C._create_function_from_graph("forward", _with_marks(module, "forward"))
    except RuntimeError:  # code of a kind that cannot be copied: it runs as it is
        return None
    arguments = method.schema.arguments[1:]

    def call(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for argument in arguments[len(args) :]:
            if argument.name in kwargs:
                given.append(kwargs.pop(argument.name))
            elif argument.has_default_value():
                given.append(argument.default_value)
        if kwargs or len(given) != len(arguments):
            return module._call_impl(*args, **kwargs)  # which says what is wrong
        with torch.jit.optimized_execution(should_optimize=False):  # else a later run is of other operators
            return run(module._c, *given)

    return call


def _has_hooks(module: Any) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _with_marks(module: torch.jit.ScriptModule, method: str) -> Any:
    """A copy of a method's code with every call of a submodule put in place, between marks."""
    graph = module._c._get_method(method).graph.copy()
    itself = next(graph.inputs())
    for node in graph.findAllNodes(_METHOD_CALL, recurse=True):
        path = _attributes(next(node.inputs()), itself)
        if path is None:
            continue  # not one of its own: its operators stand here
        called = reduce(lambda outer, name: outer._modules[name], path, module)
        inside = _with_marks(called, node.s("name"))
        graph.setInsertPoint(node)
        if path:
            _mark(graph, "enter", list(node.inputs())[1:], graph.insertConstant(".".join(path)))
        made = graph.insertGraph(inside, list(node.inputs()))
        if path:
            _mark(graph, "leave", made)
        for old, new in zip(node.outputs(), made, strict=True):
            old.replaceAllUsesWith(new)
        node.destroy()
    return graph


def _attributes(value: Any, itself: Any) -> list[str] | None:
    """The names by which a module is reached from the one whose code this is; None: it is not reached so."""
    names: list[str] = []
    while value.debugName() != itself.debugName():
        maker = value.node()
        if maker.kind() != "prim::GetAttr":
            return None
        names.insert(0, maker.s("name"))
        value = next(maker.inputs())
    return names


def _mark(graph: Any, name: str, values: list[Any], *first: Any) -> None:
    """Write a mark at the place where the graph is being written, with the tensors among the values."""
    tensors = [tensor for value in values for tensor in _tensors(graph, value)]
    listed = graph.create("prim::ListConstruct", tensors, 1)
    listed.output().setType(torch._C.ListType.ofTensors())
    graph.insertNode(listed)
    graph.insertNode(graph.create(f"opcost::{name}", [*first, listed.output()], 0))


def _tensors(graph: Any, value: Any) -> Iterator[Any]:
    """A value that is a tensor, or those in a tuple, which is taken apart for it."""
    kind = value.type().kind()
    if kind == "TensorType":
        yield value
    elif kind == "TupleType":
        items = value.type().elements()
        unpacked = graph.create("prim::TupleUnpack", [value], len(items))
        for item, held in zip(unpacked.outputs(), items, strict=True):
            item.setType(held)
        graph.insertNode(unpacked)
        for item in list(unpacked.outputs()):
            yield from _tensors(graph, item)
