"""A count leaves no trace: neither in the model and the inputs nor in the process, also when the forward pass fails."""

from __future__ import annotations

import gc
import random
import threading
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers_state import differences, fingerprint
from torch import Tensor, nn

import opcost
from opcost.frontends.torch.tensor import Recorded

B, D = 4, 6
OPTIONS: dict[str, dict[str, Any]] = {
    "forward": {},
    "backward": {"backward": True},
    "optimizer": {"optimizer": "Adam"},
    "real": {"real": True},
    "real with backward": {"real": True, "backward": True},
    "in the other mode": {"mode": "eval"},
}


def x() -> Tensor:
    return torch.linspace(-1, 1, B * D).reshape(B, D)


# -- models whose forward pass changes things -------------------------------------------------------------------------


class Stats(nn.Module):
    """Batch statistics, and running buffers written in place, assigned anew and written through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(D)
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.zeros(2, D))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.steps = self.steps + 1
        self.table[0] = x.mean(0)
        self.table.view(-1)[3:].add_(1)
        return x + self.mean + self.table[0]


class Holder:
    """An object that a module holds."""

    def __init__(self) -> None:
        self.last: Any = None
        self.seen: list[Any] = []


class Slotted:
    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = None


class Remembers(nn.Module):
    """Keeps what it sees in attributes, containers of all kinds, and objects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.list: list[Any] = []
        self.dict: dict[str, Any] = {"nested": {"deep": [1]}}
        self.ordered: OrderedDict[str, Any] = OrderedDict(a=1, b=2)
        self.default: defaultdict[str, list[Any]] = defaultdict(list)
        self.queue: deque[Any] = deque([1, 2], maxlen=2)
        self.set = {1}
        self.holder = Holder()
        self.slotted = Slotted()
        self.outside = [nn.Linear(D, D)]
        self.cache: Any = None
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) + self.outside[0](x)
        self.calls += 1
        self.cache = y
        self.list.append(y)
        self.dict["y"] = y
        self.dict["nested"]["deep"].append(y)
        self.ordered.move_to_end("a")
        self.default["y"].append(y)
        self.queue.append(y)
        self.set.add(2)
        self.holder.last = y
        self.holder.seen.append(y)
        self.slotted.last = y
        self.outside[0].last = y
        self.layer.extra = y
        del self.set
        return y


class Meddles(nn.Module):
    """Turns switches, hooks and flags in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.frozen = nn.Linear(D, D).requires_grad_(False)
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        self.eval()
        self.layer.register_forward_hook(lambda module, args, output: output + 1)
        self.layer.weight.note = "seen"
        self.frozen.weight.requires_grad_()
        self.generator.manual_seed(7)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(11)
        random.seed(11)
        np.random.seed(11)  # noqa: NPY002 - the generator of the whole process
        noise = torch.rand(D, generator=self.generator, dtype=x.dtype) + torch.rand(D, dtype=x.dtype)
        return self.frozen(self.layer(x)) + noise + random.random() + np.random.rand()  # noqa: NPY002


class Rewrites(nn.Module):
    """Writes to its own parameters: in place under no_grad, through .data, and by giving them other memory."""

    def __init__(self) -> None:
        super().__init__()
        self.clamped = nn.Linear(D, D)
        self.scaled = nn.Linear(D, D)
        self.plain = torch.zeros(D)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.clamped.weight.clamp_(-0.1, 0.1)
        self.clamped.bias.data.zero_()
        self.scaled.weight.data = self.scaled.weight.data * 2
        self.plain += 1
        return self.scaled(self.clamped(x)) + self.plain


class BackwardInside(nn.Module):
    """Differentiates in its forward pass, which fills .grad."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.layer.weight.grad = torch.ones(D, D)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.layer(x).sum().backward()
        return self.layer(x)


class Hooked(nn.Module):
    """Has hooks of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.log: list[str] = []
        self.layer.register_forward_pre_hook(lambda module, args: self.log.append("before"))
        self.layer.register_forward_hook(lambda module, args, output: self.log.append("after"))
        self.layer.register_full_backward_hook(lambda module, grad_in, grad_out: self.log.append("gradient"))
        self.layer.weight.register_hook(lambda grad: self.log.append("weight"))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True, dropout=0.1)
    return nn.Sequential(nn.Unflatten(0, (1, B)), nn.TransformerEncoder(layer, 2))


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def forward(self, pair: Any) -> Any:
            return pair[0]

    return nn.Sequential(nn.LSTM(D, D, 2, bidirectional=True, dropout=0.2), Last())


def weight_normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(D, D)), nn.utils.spectral_norm(nn.Linear(D, D)))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))
    model[1].weight = model[0].weight
    return model


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5), nn.Linear(D, D))


def mixed_modes() -> nn.Module:
    model = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Sequential(nn.BatchNorm1d(D), nn.Dropout()))
    model[2].eval()
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "statistics": Stats,
    "caches": Remembers,
    "switches": Meddles,
    "rewritten weights": Rewrites,
    "backward inside": BackwardInside,
    "hooks": Hooked,
    "attention": attention,
    "recurrent": recurrent,
    "computed weights": weight_normed,
    "tied weights": tied,
    "dropout": dropped,
    "mixed modes": mixed_modes,
}


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(5)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_different_after_a_count(name: str, options: str) -> None:
    model, given = MODELS[name](), x()
    before = fingerprint(model, given)
    opcost.count(model, given, **OPTIONS[options])
    assert differences(before, fingerprint(model, given)) == []


@pytest.mark.parametrize(
    "name", ["statistics", "caches", "switches", "rewritten weights", "backward inside", "hooks", "computed weights"]
)
@pytest.mark.filterwarnings("ignore")
def test_the_comparison_sees_what_these_models_do_change_when_they_run(name: str) -> None:
    model, given = MODELS[name](), x()
    before = fingerprint(model, given)
    model(given)
    assert differences(before, fingerprint(model, given)) != []


@pytest.mark.parametrize("options", ["forward", "backward", "optimizer"])
@pytest.mark.filterwarnings("ignore")
def test_no_tensor_without_data_outlives_a_count(options: str) -> None:
    models = [make() for make in MODELS.values()]
    before = without_data()
    for model in models:
        opcost.count(model, x(), **OPTIONS[options])
    assert without_data() <= before


def without_data() -> int:
    """How many tensors without data there are."""
    gc.collect()
    return sum(type(thing) is Recorded for thing in gc.get_objects())


class Fails(nn.Module):
    """Any of the models, which then fails inside a module of its own."""

    def __init__(self, inner: nn.Module, error: BaseException) -> None:
        super().__init__()
        self.inner = inner
        self.last = nn.Identity()
        self.last.register_forward_hook(self._raise)
        self.error = error

    def _raise(self, *_: Any) -> None:
        raise self.error

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False), torch.no_grad():
            return self.last(self.inner(x))


@pytest.mark.parametrize("options", ["forward", "optimizer", "real", "in the other mode"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_different_after_a_forward_that_raises(name: str, options: str) -> None:
    model, given = Fails(MODELS[name](), ValueError("on purpose")), x()
    before = fingerprint(model, given)
    with pytest.raises(opcost.OpcostError, match="on purpose"):
        opcost.count(model, given, **OPTIONS[options])
    assert differences(before, fingerprint(model, given)) == []


@pytest.mark.parametrize("options", ["forward", "optimizer", "real", "in the other mode"])
@pytest.mark.parametrize(
    "name", ["statistics", "caches", "switches", "rewritten weights", "recurrent", "computed weights"]
)
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_different_after_ctrl_c(name: str, options: str) -> None:
    model, given = Fails(MODELS[name](), KeyboardInterrupt()), x()
    before = fingerprint(model, given)
    with pytest.raises(KeyboardInterrupt):
        opcost.count(model, given, **OPTIONS[options])
    assert differences(before, fingerprint(model, given)) == []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_counting_twice_gives_the_same_answer(name: str) -> None:
    model = MODELS[name]()
    first, second = opcost.count(model, x()), opcost.count(model, x())
    assert first == second


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_counted_model_still_computes_what_it_did(name: str) -> None:
    expected, counted = MODELS[name](), None
    torch.manual_seed(5)
    expected = MODELS[name]()
    torch.manual_seed(5)
    counted = MODELS[name]()
    opcost.count(counted, x(), backward=True)
    torch.manual_seed(9)
    first = expected(x())
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(9)
    second = counted(x())
    assert type(second) is Tensor
    assert torch.equal(first, second)


# -- inputs -----------------------------------------------------------------------------------------------------------


class WritesInput(nn.Module):
    def forward(self, x: Tensor, cache: dict[str, Any]) -> Tensor:
        x.add_(1).relu_()
        cache["key"] = x
        cache["list"].append(x)
        return x


@pytest.mark.parametrize("real", [False, True])
def test_inputs_and_the_containers_around_them_are_not_written(real: bool) -> None:
    given = x()
    cache: dict[str, Any] = {"list": [], "tensor": x()}
    before = fingerprint(given, cache)
    opcost.count(WritesInput(), (given, cache), real=real)
    assert differences(before, fingerprint(given, cache)) == []


def test_an_empty_cache_object_that_is_passed_in_stays_empty() -> None:
    class Cached(nn.Module):
        def forward(self, x: Tensor, cache: Holder) -> Tensor:
            cache.last = x * 2
            cache.seen.append(cache.last)
            return cache.last

    cache = Holder()
    opcost.count(Cached(), (x(), cache))
    assert (cache.last, cache.seen) == (None, [])


# -- surroundings -----------------------------------------------------------------------------------------------------


def test_a_count_inside_no_grad_inference_mode_autocast_and_a_default_device_leaves_them_on() -> None:
    model, given = dropped(), x()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("cpu"):
        before = fingerprint(model, given)
        opcost.count(model, given, backward=True)
        assert differences(before, fingerprint(model, given)) == []
    with torch.inference_mode():
        opcost.count(model, given)
        assert torch.is_inference_mode_enabled()


def test_a_forward_that_sets_the_default_device_does_not_keep_it() -> None:
    class SetsDevice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.set_default_device("meta")
            return x + 1

    before = fingerprint()
    opcost.count(SetsDevice(), x())
    assert differences(before, fingerprint()) == []


def test_the_users_choice_of_the_fast_path_is_kept() -> None:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        opcost.count(attention().eval(), x())
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    opcost.count(attention().eval(), x())
    assert torch.backends.mha.get_fastpath_enabled()


def test_gradients_that_were_there_are_neither_used_nor_changed() -> None:
    model = dropped()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    before = fingerprint(model)
    opcost.count(model, x(), optimizer="SGD")
    assert differences(before, fingerprint(model)) == []


# -- threads ----------------------------------------------------------------------------------------------------------


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Run jobs at the same time, each in a thread of its own, and return what they return; the first error is raised."""
    results: list[Any] = [None] * len(jobs)
    start = threading.Barrier(len(jobs))

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = jobs[index]()
        except BaseException as exc:  # noqa: BLE001 - raised again by the thread that waits
            results[index] = exc

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_threads_count_different_models_at_once() -> None:
    models = [nn.Sequential(*[nn.Linear(D, D) for _ in range(depth)]) for depth in range(1, 7)]

    def counting(model: nn.Module) -> Callable[[], list[int]]:
        return lambda: [opcost.count(model, x()).totals.macs for _ in range(5)]

    assert together(*map(counting, models)) == [[depth * B * D * D] * 5 for depth in range(1, 7)]


def test_threads_count_one_model_in_different_modes_at_once() -> None:
    model = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Dropout())
    before = fingerprint(model)
    alone = {mode: opcost.count(model, x(), mode=mode).totals for mode in ("train", "eval")}
    assert alone["train"] != alone["eval"]

    def counting(mode: str) -> Callable[[], Any]:
        return lambda: [opcost.count(model, x(), mode=mode).totals for _ in range(5)]

    modes = ("train", "eval", "train", "eval")
    assert together(*map(counting, modes)) == [[alone[mode]] * 5 for mode in modes]
    assert differences(before, fingerprint(model)) == []


def test_a_thread_that_runs_models_is_not_disturbed_by_one_that_counts() -> None:
    counted = attention().eval()
    models = [
        attention().eval(),
        nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D)),
        recurrent().eval(),
        counted,
    ]
    with torch.no_grad():
        expected = [model(x()) for model in models]
    compiled = torch.compile
    done = threading.Event()

    def running() -> int:
        turns = 0
        while not done.is_set() or turns < 3:
            with torch.no_grad():
                for model, result in zip(models, expected, strict=True):
                    assert torch.equal(model(x()), result)
            assert torch.backends.mha.get_fastpath_enabled()
            turns += 1
        return turns

    def counting() -> None:
        try:
            for _ in range(10):
                opcost.count(counted, x())
                opcost.count(Remembers(), x())
        finally:
            done.set()

    turns, _ = together(running, counting)
    assert turns >= 3
    assert torch.compile is compiled


def test_a_thread_that_compiles_while_another_counts_gets_a_compiled_function() -> None:
    inside, asked = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inside.set()
            asked.wait(10)
            return torch.compile(F.relu)(x)

    def compiling() -> Any:
        inside.wait(10)
        try:
            return torch.compile(F.relu)
        finally:
            asked.set()

    report, function = together(lambda: opcost.count(Waits(), x()), compiling)
    assert report.totals.ops == 1
    assert function is not F.relu
