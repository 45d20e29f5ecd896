"""A count that cannot be made says what, where and what to do, in one error of ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opcost
from opcost.errors import DataDependent, ForwardError, OpcostError, RuleError, UnknownName, UnknownSource


class Net(nn.Module):
    """A convolution, and a classifier two modules further down that fits one size only."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 6 * 6, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x))


def failure(model: nn.Module, *inputs: Any, **options: Any) -> ForwardError:
    """The error that a count ends with; it is checked for what every such error must have."""
    with pytest.raises(ForwardError) as caught:
        opcost.count(model, inputs, **options)
    error = caught.value
    assert error.exit_code == 2
    assert error.hint
    if error.module:
        assert f"module {error.module!r}" in str(error)
    else:
        assert "the model's own forward" in str(error)
    return error


# -- inputs that do not fit -------------------------------------------------------------------------------------------


def test_a_wrong_size_names_the_layer_what_it_got_and_what_it_needs() -> None:
    error = failure(Net(), torch.empty(1, 3, 9, 9))
    assert error.module == "head.1"
    assert "Linear(in_features=288, out_features=10, bias=True)" in str(error)
    assert f"received 1x{8 * 7 * 7} float32" in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert "shapes of the inputs" in error.hint


def test_a_wrong_number_of_channels_names_the_layer_what_it_got_and_what_it_needs() -> None:
    error = failure(Net(), torch.empty(1, 4, 8, 8))
    assert error.module == "stem"
    assert "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))" in str(error)
    assert "received 1x4x8x8 float32" in str(error)


def test_an_image_smaller_than_the_kernel_is_refused() -> None:
    error = failure(Net(), torch.empty(1, 3, 2, 2))
    assert error.module == "stem"
    assert "Kernel size can't be greater" in str(error)


FLOAT_MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 3), (2, 4)),
    "linear without bias": (nn.Linear(4, 3, bias=False), (2, 4)),
    "linear on three axes": (nn.Linear(4, 3), (2, 5, 4)),
    "convolution": (nn.Conv2d(3, 8, 3), (1, 3, 8, 8)),
    "convolution without bias": (nn.Conv1d(3, 8, 3, bias=False), (1, 3, 8)),
    "transposed convolution": (nn.ConvTranspose2d(3, 8, 3, bias=False), (1, 3, 8, 8)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_an_input_of_another_type_than_the_weights_fails_as_it_does_for_real(name: str, dtype: torch.dtype) -> None:
    model, shape = FLOAT_MODELS[name]
    given = torch.zeros(shape, dtype=dtype)
    with pytest.raises(RuntimeError):
        model(given)
    error = failure(model, given)
    assert str(dtype).removeprefix("torch.") in str(error)
    assert "types" in error.hint


def test_floats_for_an_embedding_are_refused_with_how_to_give_integers() -> None:
    error = failure(nn.Sequential(nn.Embedding(4, 3)), torch.empty(2, 4))
    assert error.module == "0"
    assert 'dtypes="int64"' in error.hint
    assert "--input" in error.hint


def test_two_operands_of_different_types_inside_the_model_are_reported() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.half().T

    assert "float16" in str(failure(Mixed(), torch.empty(2, 4)))


# -- shapes without elements ------------------------------------------------------------------------------------------


def test_an_empty_batch_costs_nothing_and_the_report_says_why() -> None:
    report = opcost.count(Net(), shapes=(0, 3, 8, 8))
    assert report.totals.macs == 0
    (note,) = report.notes
    assert note.code == "empty"
    assert "0x3x8x8" in note.text


def test_a_mean_over_nothing_is_counted_and_noted() -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean()

    assert [note.code for note in opcost.count(Mean(), shapes=(0,)).notes] == ["empty"]


def test_an_output_without_elements_is_an_error_where_pytorch_makes_it_one() -> None:
    assert "too small" in str(failure(nn.AvgPool2d(3), torch.empty(1, 3, 2, 2)))
    assert "BatchNorm1d" in str(failure(nn.Sequential(nn.BatchNorm1d(4)), torch.empty(1, 4)))


# -- a forward that raises --------------------------------------------------------------------------------------------


class Raises(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


def test_the_models_own_error_is_reported_with_its_class_its_text_its_line_and_its_module() -> None:
    own = ValueError("the depth must be even")
    error = failure(nn.Sequential(nn.ReLU(), nn.Sequential(Raises(own))), torch.empty(2))
    assert error.module == "1.0"
    assert type(error) is ForwardError
    for part in ("ValueError", "the depth must be even", "test_errors.py:", "Raises()"):
        assert part in str(error)
    assert error.__cause__ is own


def test_an_error_that_the_model_handles_is_not_blamed_for_a_later_one() -> None:
    class Recovers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Raises(ValueError("first"))
            self.second = Raises(KeyError("second"))

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.first(x)
            except ValueError:
                return self.second(x)

    assert failure(Recovers(), torch.empty(2)).module == "second"


def test_a_model_that_handles_its_error_is_counted() -> None:
    class Recovers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Raises(ValueError("first"))
            self.layer = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.first(x)
            except ValueError:
                return self.layer(x)

    assert opcost.count(Recovers(), torch.empty(1, 2)).totals.macs == 2 * 3


def test_a_module_without_forward_is_refused() -> None:
    assert "forward" in str(failure(nn.Module(), torch.empty(1)))


def test_an_extra_repr_that_raises_does_not_hide_the_error() -> None:
    class Shy(Raises):
        def extra_repr(self) -> str:
            raise RuntimeError("no")

    assert "on purpose" in str(failure(Shy(ValueError("on purpose")), torch.empty(1)))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exit_passes_through(kind: type[BaseException]) -> None:
    own = kind()
    with pytest.raises(kind) as caught:
        opcost.count(Raises(own), torch.empty(1))
    assert caught.value is own


# -- devices ----------------------------------------------------------------------------------------------------------


CUDA = {
    "cuda()": lambda x: x.cuda(),
    "to": lambda x: x.to("cuda"),
    "factory": lambda x: x + torch.zeros(4, device="cuda"),
    "current device": lambda x: x + torch.cuda.current_device(),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
@pytest.mark.parametrize("name", CUDA)
def test_a_model_that_needs_cuda_where_there_is_none_gets_a_hint(calls: Any, name: str) -> None:
    error = failure(nn.Sequential(nn.ReLU(), calls(CUDA[name])), torch.empty(2, 4))
    assert error.module == "1"
    assert "test_errors.py:" in str(error)
    assert "CUDA" in error.hint


def test_a_model_on_the_meta_device_needs_no_device() -> None:
    assert opcost.count(nn.Linear(4, 3, device="meta"), torch.empty(2, 4)).totals.macs == 2 * 4 * 3


# -- data dependence --------------------------------------------------------------------------------------------------


def test_a_question_of_data_names_the_module_the_line_and_the_way_out() -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) if x.mean() > 0 else x

    error = failure(nn.Sequential(nn.Linear(4, 4, device="meta"), nn.Sequential(Gate())), torch.empty(2, 4))
    assert type(error) is DataDependent
    assert error.module == "1.0"
    assert "test_errors.py:" in str(error)
    assert "0.weight has no data: give the model with its weights" in error.hint


def test_a_result_whose_size_depends_on_data_keeps_the_cause() -> None:
    class Unique(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.unique()

    error = failure(nn.Sequential(nn.Linear(4, 4, device="meta"), Unique()), torch.empty(2, 4))
    assert type(error) is DataDependent
    assert error.__context__ is not None


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [("mode", "trian", "train"), ("optimizer", "Adamm", "Adam"), ("causal", "haf", "half")],
)
def test_a_misspelt_option_is_refused_with_what_was_meant(option: str, value: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"did you mean '{meant}'"):
        opcost.count(nn.Linear(4, 3), torch.empty(2, 4), **{option: value})


def test_nothing_to_differentiate_is_reported() -> None:
    for model in (nn.ReLU(), nn.Linear(4, 3).requires_grad_(False)):
        with pytest.raises(ForwardError, match="nothing to differentiate") as caught:
            opcost.count(model, torch.empty(2, 4), backward=True)
        assert "unfreeze" in caught.value.hint


@pytest.mark.parametrize("thing", [nn.Linear, object(), 3, None, "no such thing"])
def test_what_is_no_model_is_refused(thing: Any) -> None:
    with pytest.raises(UnknownSource):
        opcost.count(thing, torch.empty(1))


def test_a_rule_that_fails_is_reported_with_the_operator_and_its_shapes() -> None:
    with pytest.raises(RuleError, match=r"aten::addmm with inputs .*2x4.* ZeroDivisionError") as caught:
        opcost.count(nn.Linear(4, 3), torch.empty(2, 4), rules={"aten::addmm": lambda op: op.cost(macs=1 // 0)})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(RuleError, match="returned 3"):
        opcost.count(nn.Linear(4, 3), torch.empty(2, 4), rules={"aten::addmm": lambda op: 3})


def test_every_error_is_one_of_ours() -> None:
    for attempt in (
        lambda: opcost.count(Net(), torch.empty(1, 3, 9, 9)),
        lambda: opcost.count(Net(), shapes=(1, -3)),
        lambda: opcost.count(object()),
        lambda: opcost.count(nn.Linear(4, 3, device="meta"), torch.empty(2, 4), real=True),
    ):
        with pytest.raises(OpcostError) as caught:
            attempt()
        assert caught.value.exit_code in (2, 3)
        assert "Traceback" not in str(caught.value)


def test_an_error_that_has_no_place_names_none() -> None:
    model = nn.Linear(2, 3).requires_grad_(False)
    with pytest.raises(OpcostError, match="no parameter requires a gradient") as caught:
        opcost.count(model, torch.ones(1, 2), backward=True)
    assert caught.value.message.endswith("requires a gradient")


# -- hints that fit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "of_shapes"),
    [
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x8 and 6x2)"), True),
        (
            RuntimeError("The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"),
            True,
        ),
        (
            RuntimeError("Given groups=1, weight of size [8, 3, 3, 3], expected input[1, 4, 8, 8] to have 3 channels"),
            True,
        ),
        (ValueError("not enough values to unpack (expected 4, got 3)"), True),
        (AssertionError("Input image size (32*32) does not match the model (224*224)"), True),
        (TypeError("forward() missing 1 required positional argument: 'mask'"), False),
        (KeyError("positions"), False),
        (AttributeError("'NoneType' object has no attribute 'shape'"), False),
        (ValueError("no tokenizer was given"), False),
    ],
)
def test_the_hint_speaks_of_shapes_only_where_the_error_does(error: Exception, of_shapes: bool) -> None:
    hint = failure(Raises(error), torch.ones(2)).hint
    assert ("shapes of the inputs" in hint) == of_shapes, hint
    assert "--debug" not in hint  # an option of the command line, which adds it


def test_a_model_of_triton_kernels_is_named_with_the_gpu_that_they_need() -> None:
    space: dict[str, Any] = {"__name__": "triton.runtime.driver"}
    exec("def active(): raise RuntimeError('0 active drivers ([]). There should only be one.')", space)

    class Kernels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return space["active"]()

    for error in (
        failure(Kernels(), torch.ones(2)),
        failure(Raises(ModuleNotFoundError("No module named 'triton'")), torch.ones(2)),
    ):
        assert "Triton" in error.hint
        assert "GPU" in error.hint
        assert "shapes" not in error.hint
