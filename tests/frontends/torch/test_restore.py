"""A count leaves no trace: neither in the model and the inputs nor in the process, also when the forward pass fails."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers_models import MODELS, Holder, attention, dropped, x
from helpers_state import differences, fingerprint
from torch import Tensor, nn

import opcost
from opcost.frontends.torch.ledger.tensors import Recorded
from opcost.frontends.torch.restore.snapshot import Snapshot

OPTIONS: dict[str, dict[str, Any]] = {
    "forward": {},
    "backward": {"backward": True},
    "optimizer": {"optimizer": "Adam"},
    "real": {"real": True},
    "real with backward": {"real": True, "backward": True},
    "in the other mode": {"mode": "eval"},
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


def test_objects_whose_class_has_no_name_of_a_module_are_no_hindrance() -> None:
    """Functions that Cython compiled have their own `__module__`, so that of their class is no text but a descriptor."""

    class Compiled:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    Compiled.__module__ = property(lambda _: "somewhere")  # type: ignore[assignment]

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function = Compiled()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.function(x)

    assert opcost.count(Calls(), shapes=(2, 3)).totals.flops == 6  # one addition for each element


def test_the_operators_of_torch_are_not_searched_for_state_and_those_of_a_user_are() -> None:
    torch.ops.opcost_restore.kept = [1]  # type: ignore[attr-defined]
    try:
        snapshot = Snapshot([calls_operators])
        torch.ops.opcost_restore.kept.append(2)  # type: ignore[attr-defined]
        snapshot.restore()
        assert torch.ops.opcost_restore.kept == [1]
    finally:
        del torch.ops.opcost_restore.kept
    assert id(torch.ops.aten.relu) not in snapshot._seen


ops = torch.ops


def calls_operators(given: Tensor) -> Tensor:
    return ops.aten.relu(given)


def test_an_assert_that_pytest_rewrote_leads_to_no_object_of_pytest() -> None:
    def forward(given: int) -> int:
        assert given == 1
        return given

    assert any(name.startswith("@") for name in forward.__code__.co_names), "pytest has rewritten it"
    seen = Snapshot([forward])._seen.values()
    assert not [value for value in seen if type(value).__module__.startswith("_pytest")]
