"""A count or a profile inside anything else: the same answer as outside or a clear error, and nothing is changed."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from sampling import FULL
from stateful import process
from stateful.entry_points import call
from stateful.registry import made
from stateful.snapshot import Snapshot, differences, set_aside, without_data
from stateful.twins import expected, outputs, warm_entry_points
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import opcost
from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.errors import OpcostError

pytestmark = pytest.mark.filterwarnings("ignore")

Do = Callable[[], None]
SUBJECT = ("mixtures", "Mixture")


class Watching(TorchDispatchMode):
    """A mode of the user's own, which has its own idea of every operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Listening(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def inside(*make: Callable[[], Any]) -> Callable[[Do], None]:
    """Within context managers."""

    def surround(do: Do) -> None:
        if len(make) == 1:
            with make[0]():
                do()
        else:
            with make[0]():
                inside(*make[1:])(do)

    return surround


def _transformed(transform: Callable[[Callable[[Tensor], Any]], Callable[..., Any]]) -> Callable[[Do], None]:
    def surround(do: Do) -> None:
        def function(x: Tensor) -> Tensor:
            do()
            return (x * x).sum()

        transform(function)(torch.ones(2, 3))

    return surround


def _in_a_hook(do: Do) -> None:
    other = nn.Identity()
    other.register_forward_hook(lambda *_: do())
    other(torch.ones(1, 2))


def _in_a_gradient_hook(do: Do) -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda grad: do())
    (x * 2).sum().backward()


class Outer(nn.Module):
    """A model whose own forward counts another one."""

    def __init__(self, do: Do) -> None:
        super().__init__()
        self.do = [do]
        self.layer = nn.utils.skip_init(nn.Linear, 3, 3)  # draws no random numbers

    def forward(self, x: Tensor) -> Tensor:
        self.do[0]()
        return self.layer(x)


def _in_a_count(do: Do) -> None:
    report = opcost.count(Outer(do), torch.ones(2, 3))
    assert report.totals.macs == 2 * 3 * 3, f"the outer count has {report.totals.macs} MACs"


def _in_a_real_count(do: Do) -> None:
    report = opcost.count(Outer(do), torch.ones(2, 3), real=True)
    assert report.totals.macs == 2 * 3 * 3, f"the outer count has {report.totals.macs} MACs"


class InForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, do: Do) -> Tensor:
        do()
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * 2, None


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, do: Do) -> Tensor:
        ctx.do = do
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.do()
        return grads[0] * 2, None


def _in_another_thread(do: Do) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            do()
        except BaseException as exc:  # noqa: BLE001 - handed on
            errors.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _in_a_coroutine(do: Do) -> None:
    async def work() -> None:
        do()

    asyncio.run(work())


def _compiled(do: Do) -> None:
    quiet = torch.compiler.disable(do)

    @torch.compile(backend="eager")
    def function(x: Tensor) -> Tensor:
        x = x * 2
        quiet()
        return x + 1

    function(torch.ones(3))
    torch.compiler.reset()


def _with_default_device(name: str) -> Callable[[Do], None]:
    def surround(do: Do) -> None:
        torch.set_default_device(name)
        try:
            do()
        finally:
            torch.set_default_device(None)

    return surround


def _traced(do: Do) -> None:
    def function(x: Tensor) -> Tensor:
        do()
        return x * 2

    torch.jit.trace(function, torch.ones(2), check_trace=False)


def _exported(do: Do) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x: Tensor) -> Tensor:
        do()
        return x * 2

    make_fx(function)(torch.ones(2))


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SURROUNDINGS: dict[str, Callable[[Do], None]] = {
    "nothing": lambda do: do(),
    "fake tensors": inside(FakeTensorMode),
    "fake tensors that take real ones": inside(lambda: FakeTensorMode(allow_non_fake_inputs=True)),
    "vmap": _transformed(torch.func.vmap),
    "grad": _transformed(torch.func.grad),
    "jacrev": _transformed(torch.func.jacrev),
    "jvp": _transformed(lambda function: lambda x: torch.func.jvp(function, (x,), (x,))),
    "functionalize": _transformed(torch.func.functionalize),
    "grad of vmap": _transformed(lambda function: torch.func.grad(lambda x: torch.func.vmap(function)(x).sum())),
    "inference mode": inside(torch.inference_mode),
    "no_grad": inside(torch.no_grad),
    "enable_grad": inside(torch.enable_grad),
    "autocast": inside(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "a dispatch mode": inside(Watching),
    "two dispatch modes": inside(Watching, Watching),
    "a function mode": inside(Listening),
    "a counter of flops": inside(lambda: FlopCounterMode(display=False)),
    "the meta device": inside(lambda: torch.device("meta")),
    "the cpu device": inside(lambda: torch.device("cpu")),
    "the meta device by default": _with_default_device("meta"),
    "the cpu device by default": _with_default_device("cpu"),
    "deterministic algorithms": inside(_deterministic),
    "anomaly detection": inside(torch.autograd.detect_anomaly),
    "hooks of saved tensors": inside(lambda: saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)),
    "tensors saved on the cpu": inside(save_on_cpu),
    "cached parametrizations": inside(nn.utils.parametrize.cached),
    "a profiler of the user's": inside(torch.profiler.profile),
    "a forward hook of another model": _in_a_hook,
    "a gradient hook": _in_a_gradient_hook,
    "another count": _in_a_count,
    "another count for real": _in_a_real_count,
    "another profile": lambda do: opcost.profile(Outer(do), torch.ones(2, 3), warmup=0, repeat=1),
    "the forward of a function": lambda do: InForward.apply(torch.ones(2, requires_grad=True), do),
    "the backward of a function": lambda do: InBackward.apply(torch.ones(2, requires_grad=True), do).sum().backward(),
    "a checkpoint": lambda do: checkpoint(lambda x: (do(), x * 2)[1], torch.ones(2), use_reentrant=False),
    "a reentrant checkpoint": lambda do: checkpoint(
        lambda x: (do(), x * 2)[1], torch.ones(2, requires_grad=True), use_reentrant=True
    ),
    "another thread": _in_another_thread,
    "a coroutine": _in_a_coroutine,
    "a compiled function": _compiled,
    "a trace": _traced,
    "a symbolic trace": _exported,
}


ANOTHER_ANSWER = ("autocast", "hooks of saved tensors", "tensors saved on the cpu")
"""Where the model itself would compute something else."""

PER_THREAD = (
    "grad mode", "default dtype", "default device", "autocast on cpu", "autocast dtype on cpu", "deterministic algorithms",
    "anomaly detection",
)  # fmt: skip


def here() -> dict[str, Any]:
    """What can be seen from within: the modes that are on, and the switches that belong to them."""
    switches = {name: process.SWITCHES[name].read() for name in PER_THREAD}
    return {**switches, **{name: read() for name, read in process.FIXED.items()}}


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """The surroundings themselves import more of torch when they are first used, and a compiler sets the environment."""
    with process.kept():
        warm_entry_points()
        _compiled(lambda: None)
        _exported(lambda: None)
        yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def process_kept() -> Iterator[None]:
    with process.kept():
        yield


def _pairs() -> list[tuple[str, str]]:
    """A count in all surroundings, and in turn a backward pass, a real run and a profile."""
    others = ("backward", "real", "profile")
    return [
        (name, entry)
        for index, name in enumerate(SURROUNDINGS)
        for entry in ("count", *(others if FULL or "profile" in name else others[index % 3 :][:1]))
    ]


@cache
def _outside(entry: str) -> Any:
    """What an entry point returns where nothing surrounds it."""
    with process.kept(), made(*SUBJECT) as twin:
        return call(entry, twin.model, twin.case.inputs())


@pytest.mark.parametrize(("name", "entry"), _pairs())
def test_the_same_answer_or_a_clear_error_and_nothing_is_changed(name: str, entry: str) -> None:
    contextvars.copy_context().run(_surrounded, name, entry)


class _Answers:
    """Guarded by a lock, while another thread lives: a count around this one leaves it alone, and does not undo its work."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.all: list[Any] = []


@contextmanager
def _company() -> Iterator[None]:
    leave = threading.Event()
    other = threading.Thread(target=leave.wait)
    other.start()
    try:
        yield
    finally:
        leave.set()
        other.join()


def _surrounded(name: str, entry: str) -> None:
    outside = _outside(entry)
    answers = _Answers()
    found = answers.all
    set_aside()
    with made(*SUBJECT) as subject:
        given = subject.case.inputs()
        before = Snapshot(subject)

        def do() -> None:
            seen = here()
            answers.all.append(call(entry, subject.model, given))
            changed = [f"{key}: {seen[key]} -> {now}" for key, now in here().items() if seen[key] != now]
            if changed:
                pytest.fail("inside, not as before:\n" + "\n".join(changed))

        with _company():
            SURROUNDINGS[name](do)
        if changed := differences(before, Snapshot(subject)):
            pytest.fail("not as before:\n" + "\n".join(changed[:12]))
        _check(name, found, outside)
        del found[:], do, before
        if alive := list(map(repr, without_data())):
            pytest.fail(f"tensors without data are alive: {alive[:5]}")
        if outputs(subject) != expected(*SUBJECT):
            pytest.fail("the model answers otherwise")


def _check(name: str, found: list[Any], outside: Any) -> None:
    assert found
    for answer in found:
        if isinstance(answer, OpcostError):
            assert len(str(answer)) > 20
        elif isinstance(outside, Report):
            # A cache around a real run holds tensors longer: that is true of its memory, and nothing else may differ.
            if replace(answer, memory=outside.memory) != outside and name not in ANOTHER_ANSWER:
                pytest.fail(f"another count than outside:\n{outside}\n{answer}")
        else:
            assert isinstance(answer, Profile)
