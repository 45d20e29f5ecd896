"""Which module is running: one wrapper around `nn.Module.__call__`, in place only while something is recorded.

Hooks on every module would take the slow path of every call and leave traces when a forward raises. The wrapper serves
only the thread that records and those that forward starts (`Threads`); calls from other threads go straight through. The
threads of the autograd engine are an exception on demand: with checkpoints, a backward pass on a device calls modules there.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _worker as _pool_worker
from contextlib import ExitStack, contextmanager
from functools import cache, partial, reduce
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

from opcost.core.graph import UNSEEN
from opcost.core.names import STAR, matches, starred
from opcost.core.option import Keep, Step
from opcost.errors import InputError, OpcostError, UnknownName
from opcost.frontends.torch import private
from opcost.frontends.torch.ledger.recorder_state import counting_thread, here
from opcost.frontends.torch.models.unwrap import type_name
from opcost.frontends.torch.recording.recorder import DatalessRecorder
from opcost.frontends.torch.restore.process import replaced


class _Wrapper:
    """The state of what replaces `nn.Module.__call__`, of which there is one in the process."""

    lock = threading.Lock()
    users = 0  # Recordings that need it now
    plain: Callable[..., Any] = nn.Module.__call__
    enter_in_engine: Callable[..., Any] | None = None
    elsewhere: Callable[..., None] | None = None  # Called for calls in threads that are not recorded


def _scoped_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    enter = here.enter
    if enter is None and _Wrapper.enter_in_engine is not None and private.autograd_node() is not None:
        enter = _Wrapper.enter_in_engine
    if enter is None:
        if _Wrapper.elsewhere is not None:
            _Wrapper.elsewhere(module, args, kwargs)
        return _Wrapper.plain(module, *args, **kwargs)
    return enter(module, args, kwargs)


@contextmanager
def intercept_calls(
    enter: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any],
    *,
    engine: bool = False,
    elsewhere: Callable[..., None] | None = None,
) -> Iterator[None]:
    """Hand every module call of this thread to `enter(module, args, kwargs)` for the time of the block.

    With `engine`, also those of the autograd engine's own threads; calls of other threads go to `elsewhere` too.
    """
    outer = here.path, here.enter, _Wrapper.enter_in_engine, _Wrapper.elsewhere
    with _Wrapper.lock:
        if _Wrapper.users == 0:
            _Wrapper.plain = nn.Module.__call__
            nn.Module.__call__ = _scoped_call  # type: ignore[method-assign, assignment]
        _Wrapper.users += 1
    here.path, here.enter = "", enter
    if engine:
        _Wrapper.enter_in_engine = enter
    if elsewhere is not None:
        _Wrapper.elsewhere = elsewhere
    try:
        yield
    finally:
        here.path, here.enter, _Wrapper.enter_in_engine, _Wrapper.elsewhere = outer
        with _Wrapper.lock:
            _Wrapper.users -= 1
            if _Wrapper.users == 0:
                nn.Module.__call__ = _Wrapper.plain  # type: ignore[method-assign, assignment]


class Left(BaseException):
    """A forward pass ends on purpose inside of a module, and hands over tensors: a model is followed as far as a stage goes."""

    def __init__(self, handed: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.handed = handed


_PATIENCE_S = 0.1  # A thread that records no operator for so long may wait for the one that started it
_PATIENT = 100  # Times that the starting thread waits for that, at most


class Threads:
    """Records what runs in threads that forward starts, and in tasks that it gives to an executor.

    The thread that starts another waits until it ends or does nothing more by itself. So they run one after the other, in
    the same order every time, and the operators of a module call stay together.
    """

    def __init__(self, recorder: DatalessRecorder, enter: Callable[..., Any], *, backward: bool) -> None:
        self.recorder = recorder
        self._enter = enter
        self._backward = backward
        self._calls = 0
        self.failure: OpcostError | None = None  # What ended a thread, where it is reported nowhere else

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Inside, threads that forward starts are recorded."""
        start, submit = threading.Thread.start, ThreadPoolExecutor.submit

        def started(thread: threading.Thread) -> None:
            if not self._is_recording() or getattr(thread, "_target", None) is _pool_worker:
                start(thread)
                return
            ended = threading.Event()
            run = self._recorded(thread.run, ended)

            def kept() -> None:  # an error of ours is kept for the thread that counts
                del thread.run  # type: ignore[misc]
                try:
                    run()
                except OpcostError as exc:
                    self.failure = self.failure or exc

            thread.run = kept  # type: ignore[method-assign]
            start(thread)
            self._wait(ended)

        def submitted(pool: ThreadPoolExecutor, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            if not self._is_recording():
                return submit(pool, task, *args, **kwargs)
            ended = threading.Event()
            future = submit(pool, self._recorded(task, ended), *args, **kwargs)
            self._wait(ended)
            return future

        with ExitStack() as undo:
            undo.enter_context(replaced(threading.Thread, "start", started))
            undo.enter_context(replaced(ThreadPoolExecutor, "submit", submitted))
            try:
                yield
            finally:
                self.recorder.ended = True

    def close(self) -> None:
        """Forward has ended: what its threads do from here on is not counted."""
        self.recorder.ended = True
        if self._calls:
            self.recorder.note(
                UNSEEN,
                "a thread that forward started was still in a module when forward ended: the rest of it is not counted",
            )

    def _is_recording(self) -> bool:
        """Whether operators are recorded here now: not inside one of them."""
        return any(isinstance(mode, DatalessRecorder) for mode in private.dispatch_modes())

    def _wait(self, ended: threading.Event) -> None:
        recorder = self.recorder
        for _ in range(_PATIENT):
            before = len(recorder.ops)
            if ended.wait(_PATIENCE_S):
                return
            if recorder.lock.acquire(blocking=False):  # else an operator runs
                recorder.lock.release()
                if len(recorder.ops) == before:
                    return

    def _recorded(self, task: Callable[..., Any], ended: threading.Event) -> Callable[..., Any]:
        """The task as a part of the module that starts it."""
        path, counting = here.path, counting_thread()

        def run(*args: Any, **kwargs: Any) -> Any:
            if self.recorder.ended:
                return task(*args, **kwargs)
            self.recorder.stop_replay()  # it expects calls in the order of one thread
            outer = here.path, here.enter, here.counted_by
            here.path, here.enter, here.counted_by = path, self._called, counting
            private.push_mode(self.recorder)
            try:
                with torch.set_grad_enabled(self._backward):
                    return task(*args, **kwargs)
            finally:
                private.pop_mode()
                here.path, here.enter, here.counted_by = outer
                ended.set()

        return run

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in place of every module call of such a thread."""
        if self.recorder.ended:
            return _Wrapper.plain(module, *args, **kwargs)
        self._calls += 1
        try:
            return self._enter(module, args, kwargs)
        finally:
            self._calls -= 1


class Paths:
    """The paths of a model's modules; one object may have several."""

    def __init__(self, model: nn.Module) -> None:
        self.all: list[tuple[str, nn.Module]] = []
        self._of: dict[int, list[str]] = {}
        self.adopted: Callable[[str, nn.Module], None] = lambda path, module: None
        """Called for every module that the model does not register."""
        self._at: dict[str, nn.Module] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            self._add(path, module)

    def _add(self, path: str, module: nn.Module) -> str:
        if path in self._at:  # where a name in `_modules` is empty or has a dot in it
            path = next(f"{path}<{serial}>" for serial in itertools.count(2) if f"{path}<{serial}>" not in self._at)
        self.all.append((path, module))
        self._at[path] = module
        self._of.setdefault(id(module), []).append(path)
        return path

    def path(self, module: nn.Module, running: str) -> str:
        """The path under which `module` is called from inside `running`.

        A module that the model does not register (one kept in a plain list) gets a path below the one that calls it.
        """
        found = self._of.get(id(module))
        if found is None:
            self._take_in(running, self._at[running])
            found = self._of.get(id(module))
        if found is None:
            stem = f"{running}." if running else ""
            kind = type(module).__name__
            names = (f"{stem}<{kind}>", *(f"{stem}<{kind} {serial}>" for serial in range(2, len(self.all) + 3)))
            path = next(name for name in names if name not in self._at)
            self._add_tree(path, module)
            return path
        if len(found) == 1:
            return found[0]
        for path in found:
            if path.rpartition(".")[0] == running:
                return path
        return next((path for path in found if path.startswith(f"{running}.")), found[0])

    def knows(self, module: nn.Module) -> bool:
        """Whether it is one of the model's."""
        return id(module) in self._of

    def take_in_made(self) -> None:
        """Give a path to every module that forward made and registered."""
        for path, module in list(self.all):
            self._take_in(path, module)

    def _take_in(self, path: str, module: nn.Module) -> None:
        for name, child in module._modules.items():
            inside = f"{path}.{name}" if path else name
            if child is None:
                continue
            if id(child) not in self._of:
                self._add_tree(inside, child)
            elif isinstance(child, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
                self._take_in(inside, child)

    def _add_tree(self, path: str, module: nn.Module) -> None:
        for below, inner in module.named_modules(prefix=path, remove_duplicate=False):
            self.adopted(self._add(below, inner), inner)


# -- scripted: Scripted and traced modules, whose submodules are called by PyTorch's interpreter, where no hook sees it.
#
# The calls are reported by two operators of our own, written into a copy of the module's code around each call, which is used
# there. The module's own code stays as it is.


@cache
def markers() -> tuple[Any, ...]:
    """The operators that report a call: `enter` with the path below the caller, and `leave`; and their library."""
    return private.own_operators(enter="str path, Tensor[] given", leave="Tensor[] made")


def marked(module: torch.jit.ScriptModule) -> Callable[..., Any] | None:
    """What a call of a scripted module runs, with its submodules' calls marked; None: it has none, or they cannot be."""
    if not len(module._modules) or bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks):
        return None
    try:
        markers()
        method = module._c._get_method("forward")
        run = private.function_of_graph("forward", _with_marks(module, "forward"))
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


def _with_marks(module: torch.jit.ScriptModule, method: str) -> Any:
    """A copy of a method's code with every call of a submodule put in place, between marks."""
    graph = module._c._get_method(method).graph.copy()
    itself = next(graph.inputs())
    for node in graph.findAllNodes("prim::CallMethod", recurse=True):
        path: list[str] = []  # the names by which the called module is reached from this one
        value = next(node.inputs())
        while (maker := value.node()).kind() == "prim::GetAttr":
            path.insert(0, maker.s("name"))
            value = next(maker.inputs())
        if value.debugName() != itself.debugName():
            continue  # not one of its own: its operators are here
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


def _mark(graph: Any, name: str, values: list[Any], *first: Any) -> None:
    """Write a mark at the place where the graph is being written, with the tensors among the values."""
    tensors = [tensor for value in values for tensor in _tensors(graph, value)]
    listed = graph.create("prim::ListConstruct", tensors, 1)
    listed.output().setType(private.list_of_tensors())
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
        for item, kind in zip(unpacked.outputs(), items, strict=True):
            item.setType(kind)
        graph.insertNode(unpacked)
        for item in list(unpacked.outputs()):
            yield from _tensors(graph, item)


# -- activation checkpoints around chosen modules, for the time of one run

Enter = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]  # Takes a call of a module in place of the module


_NO_CACHE: dict[str, Any] = {"use_cache": False, "past_key_values": None, "past_key_value": None, "layer_past": None}
"""A layer that runs twice would write twice to a cache; transformers too gives its layers none when it checkpoints them."""


class Checkpoints:
    """Calls the modules whose paths end as one of the patterns through PyTorch's own checkpoint."""

    def __init__(self, step: Step, paths: Paths, enter: Enter) -> None:
        self._patterns = patterns = step.checkpoint
        self._enter = enter
        self._contexts = partial(_keeping, step.checkpoint_keep) if step.checkpoint_keep else noop_context_fn
        self._modules: dict[int, tuple[str, nn.Module]] = {}
        self._called = False
        for pattern in patterns:
            found = {id(module): (path, module) for path, module in paths.all if path and matches(path, pattern)}
            if not found:
                raise UnknownName("module path", pattern, starred(path for path, _ in paths.all), hint=STAR)
            self._modules.update(found)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if id(module) not in self._modules or not torch.is_grad_enabled():
            return self._enter(module, args, kwargs)
        self._called = True
        kept = {name: _NO_CACHE.get(name, value) for name, value in kwargs.items()}

        def run(*args: Any, **kwargs: Any) -> Any:
            return self._enter(module, args, kwargs)

        # which runs it again in the backward pass
        return checkpoint(run, *args, use_reentrant=False, context_fn=self._contexts, **kept)

    def check(self) -> None:
        """Raise where forward has called none of the modules: a list of layers, for instance, is not called itself."""
        if not self._called:
            path, module = next(iter(self._modules.values()))
            raise InputError(
                f"no module that checkpoint={', '.join(self._patterns)} means is called: {path} ({type_name(module)})",
                hint=f"mean the modules in it: {self._patterns[0]}.*",
            )


_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "convolution"})


def _keeping(what: Keep) -> tuple[Any, Any]:
    """Around a checkpointed call and around its repetition: results of some operators are kept, and not computed again."""
    calls: Counter[bool] = Counter()  # products of the call, and of its repetition

    def policy(context: Any, func: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        name = func._schema.name.rpartition("::")[2]
        kept = "scaled_dot_product" in name or name in _PRODUCTS
        if name in _PRODUCTS:
            calls[context.is_recompute] += 1
            kept = what == "products" or calls[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(policy)
    return contexts
