"""What a model is called with: tensors in any structure, shapes, or what the model itself says."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import InputError, UnknownName

B, D, OUT = 5, 4, 3
MACS = B * D * OUT


def x() -> Tensor:
    return torch.ones(B, D)


class Takes(nn.Module):
    """Picks a tensor out of its one argument and puts it through a layer."""

    def __init__(self, pick: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(D, OUT)
        self.pick = pick

    def forward(self, batch: Any) -> Tensor:
        return self.layer(self.pick(batch))


# -- structures -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Plain:
    x: Tensor
    name: str = "a"


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: Tensor


Named = namedtuple("Named", "x n")  # noqa: PYI024 - the old kind, which users still have


class Typed(NamedTuple):
    x: Tensor
    n: int = 0


class Holder:
    def __init__(self, x: Tensor) -> None:
        self.x = x


class ReadOnly(Mapping[str, Any]):
    """A mapping that cannot be written to."""

    def __init__(self, **content: Any) -> None:
        self._content = content

    def __getitem__(self, name: str) -> Any:
        return self._content[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


STRUCTURES: dict[str, tuple[Callable[[], Any], Callable[[Any], Tensor]]] = {
    "tensor": (x, lambda b: b),
    "list": (lambda: [x()], lambda b: b[0]),
    "dict": (lambda: {"x": x()}, lambda b: b["x"]),
    "nested": (lambda: {"a": [{"b": (x(), 1)}], "c": None}, lambda b: b["a"][0]["b"][0]),
    "ordered dict": (lambda: OrderedDict(x=x()), lambda b: b["x"]),
    "default dict": (lambda: defaultdict(list, x=x()), lambda b: b["x"]),
    "deque": (lambda: deque([x()]), lambda b: b[0]),
    "user dict": (lambda: UserDict(x=x()), lambda b: b["x"]),
    "read-only mapping": (lambda: ReadOnly(x=x()), lambda b: b["x"]),
    "dataclass": (lambda: Plain(x()), lambda b: b.x),
    "frozen dataclass": (lambda: Frozen(x()), lambda b: b.x),
    "slotted dataclass": (lambda: Slotted(x()), lambda b: b.x),
    "frozen slotted dataclass": (lambda: FrozenSlotted(x()), lambda b: b.x),
    "named tuple": (lambda: Named(x(), 1), lambda b: b.x),
    "typed named tuple": (lambda: Typed(x()), lambda b: b.x),
    "object": (lambda: Holder(x()), lambda b: b.x),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_tensor_is_found_in_every_structure(count: Any, name: str) -> None:
    make, pick = STRUCTURES[name]
    for report in (count(Takes(pick), make()), count(Takes(pick), kwargs={"batch": make()})):
        assert report.totals.macs == MACS
        assert [(name, spec.shape) for name, spec in report.inputs] == [("batch", (B, D))]


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_users_structure_keeps_its_tensor(name: str) -> None:
    make, pick = STRUCTURES[name]
    given = make()
    tensor = pick(given)
    opcost.count(Takes(pick), (given,))
    assert pick(given) is tensor
    assert type(tensor) is Tensor


def test_one_argument_need_not_be_a_tuple_and_a_tuple_is_all_arguments(count: Any) -> None:
    assert opcost.count(nn.Linear(D, OUT), x()).totals.macs == MACS
    assert opcost.count(nn.Linear(D, OUT), (x(),)).totals.macs == MACS
    assert (
        opcost.count(nn.Bilinear(D, D, OUT), (x(), x())).totals.macs
        == opcost.count(nn.Bilinear(D, D, OUT), x(), kwargs={"input2": x()}).totals.macs
    )
    assert opcost.count(Takes(lambda b: b[1]), [x(), x()]).totals.macs == MACS


def test_one_tensor_given_twice_is_one_input(count: Any, calls: Any) -> None:
    tensor = x()
    report = count(calls(lambda a, b: a @ b.T), tensor, tensor)
    assert len(report.inputs) == 1
    assert report.totals.macs == B * D * B


def test_a_hugging_face_encoding_is_a_mapping() -> None:
    transformers = pytest.importorskip("transformers")
    encoding = transformers.BatchEncoding({"x": x()})
    report = opcost.count(Takes(lambda b: b["x"]), (encoding,))
    assert report.totals.macs == MACS
    assert len(report.inputs) == 1
    assert opcost.count(nn.Linear(D, OUT), kwargs=transformers.BatchEncoding({"input": x()})).totals.macs == MACS


# -- shapes -----------------------------------------------------------------------------------------------------------


class Tokens(nn.Module):
    """Looks its tokens up; the mask is optional."""

    def __init__(self, words: int = 10) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, D)
        self.layer = nn.Linear(D, OUT)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        y = self.layer(self.embed(input_ids)) * scale
        return y if attention_mask is None else y * attention_mask[..., None]


def seen(report: opcost.Report) -> list[tuple[str, tuple[int | None, ...] | None, str]]:
    return [(name, spec.shape, spec.dtype) for name, spec in report.inputs]


def test_one_shape_is_the_one_input() -> None:
    for shape in ((B, D), [B, D], torch.Size([B, D])):
        report = opcost.count(nn.Linear(D, OUT), shapes=shape)
        assert report.totals.macs == MACS
        assert seen(report) == [("input", (B, D), "float32")]


def test_several_shapes_are_the_inputs_in_order() -> None:
    report = opcost.count(nn.Bilinear(D, 2, OUT), shapes=[(B, D), (B, 2)])
    assert seen(report) == [("input1", (B, D), "float32"), ("input2", (B, 2), "float32")]


def test_named_shapes_are_keyword_arguments() -> None:
    report = opcost.count(nn.Bilinear(D, 2, OUT), shapes={"input2": (B, 2), "input1": (B, D)})
    assert sorted(seen(report)) == [("input1", (B, D), "float32"), ("input2", (B, 2), "float32")]


def test_an_empty_shape_is_a_scalar() -> None:
    assert seen(opcost.count(nn.ReLU(), shapes=())) == [("input", (), "float32")]


@pytest.mark.parametrize("dtype", ["float16", "torch.float16", torch.float16])
def test_a_type_is_given_by_name_or_as_itself(dtype: Any) -> None:
    report = opcost.count(nn.Linear(D, OUT, dtype=torch.float16), shapes=(B, D), dtypes=dtype)
    assert seen(report) == [("input", (B, D), "float16")]


@pytest.mark.parametrize("dtypes", [["int32", "bool"], {"input_ids": "int32", "attention_mask": "bool"}])
def test_types_follow_the_shapes_in_order_or_by_name(dtypes: Any) -> None:
    report = opcost.count(Tokens(), shapes=[(2, B), (2, B)], dtypes=dtypes)
    assert seen(report) == [("input_ids", (2, B), "int32"), ("attention_mask", (2, B), "bool")]


def test_token_ids_and_masks_are_integers_by_their_names() -> None:
    for shapes in ([(2, B), (2, B)], {"input_ids": (2, B), "attention_mask": (2, B)}):
        report = opcost.count(Tokens(), shapes=shapes)
        assert seen(report) == [("input_ids", (2, B), "int64"), ("attention_mask", (2, B), "int64")]
        assert report.totals.macs == 2 * B * D * OUT


def test_a_shape_for_token_ids_may_be_any_size_without_memory() -> None:
    report = opcost.count(Tokens(), shapes=(1 << 10, 1 << 10))
    assert report.totals.macs == (1 << 20) * D * OUT


def test_further_arguments_go_with_shapes() -> None:
    assert opcost.count(Tokens(), shapes={"input_ids": (2, B)}, kwargs={"scale": 2.0}).totals.macs == 2 * B * D * OUT


def test_a_forward_of_any_keywords_still_knows_the_names_it_says() -> None:
    class Decoder(Tokens):
        def forward(self, input_ids: Tensor, **kwargs: Any) -> Tensor:
            return super().forward(input_ids)

    assert seen(opcost.count(Decoder(), shapes=(2, B))) == [("input_ids", (2, B), "int64")]


# -- what the model says ----------------------------------------------------------------------------------------------


def test_a_model_may_say_its_inputs_as_hugging_face_timm_and_lightning_do() -> None:
    hugging_face, timm, lightning = Tokens(), nn.Conv2d(3, OUT, 1), nn.Linear(D, OUT)
    hugging_face.dummy_inputs = {"input_ids": torch.zeros(2, B, dtype=torch.int64)}
    timm.default_cfg = {"input_size": (3, 8, 8)}
    lightning.example_input_array = x()
    assert opcost.count(hugging_face).totals.macs == 2 * B * D * OUT
    assert opcost.count(timm).totals.macs == 8 * 8 * 3 * OUT
    assert opcost.count(lightning).totals.macs == MACS


@pytest.mark.zoo
def test_a_hugging_face_model_is_counted_without_inputs() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=32, n_positions=16)
    report = opcost.count(transformers.GPT2LMHeadModel(config))
    ((name, spec),) = report.inputs
    batch, tokens = spec.dims
    per_token = 4 * 8 * 8 + 2 * 8 * 32 + 2 * tokens * 8 + 8 * 32
    assert name == "input_ids"
    assert report.totals.macs == batch * tokens * per_token


@pytest.mark.zoo
def test_a_hugging_face_model_of_images_takes_the_size_of_its_configuration() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=(8, 12),
        patch_size=4,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    report = opcost.count(transformers.ViTModel(config, add_pooling_layer=False))
    tokens = 1 + (8 // 4) * (12 // 4)
    assert [(name, spec.shape) for name, spec in report.inputs] == [("pixel_values", (1, 3, 8, 12))]
    assert report.totals.macs == (tokens - 1) * 3 * 4 * 4 * 8 + tokens * (4 * 8 * 8 + 2 * 8 * 16) + 2 * tokens**2 * 8


def test_a_hugging_face_model_whose_example_lacks_its_main_input_says_so() -> None:
    model = nn.Linear(D, OUT)
    model.dummy_inputs = {"input_ids": torch.zeros(2, B, dtype=torch.int64)}
    model.main_input_name = "input_values"
    with pytest.raises(InputError, match=r"Linear takes input_values.*\(input_ids\)"):
        opcost.count(model)


@pytest.mark.zoo
def test_a_timm_model_is_counted_without_inputs() -> None:
    timm = pytest.importorskip("timm")
    report = opcost.count(timm.create_model("resnet18"))
    assert [spec.shape for _, spec in report.inputs] == [(1, 3, 224, 224)]


def test_a_model_without_arguments_needs_none(calls: Any) -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(D, OUT))

        def forward(self) -> Tensor:
            return self.weight @ self.weight.T

    assert opcost.count(Constant()).totals.macs == D * OUT * D


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_misspelt_argument_is_named_with_the_right_one() -> None:
    for options in ({"shapes": {"input_idz": (2, B)}}, {"kwargs": {"input_idz": torch.zeros(2, B, dtype=torch.int64)}}):
        with pytest.raises(UnknownName, match="did you mean 'input_ids'") as caught:
            opcost.count(Tokens(), **options)
        assert caught.value.exit_code == 2


def test_a_misspelt_type_is_named_with_the_right_one() -> None:
    with pytest.raises(UnknownName, match="did you mean 'float32'"):
        opcost.count(nn.Linear(D, OUT), shapes=(B, D), dtypes="flot32")


def test_a_type_for_an_input_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'input_ids'"):
        opcost.count(Tokens(), shapes={"input_ids": (2, B)}, dtypes={"input_id": "int64"})


def test_fewer_types_than_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="1 element types"):
        opcost.count(Tokens(), shapes=[(2, B), (2, B)], dtypes=["int64"])


def test_a_negative_extent_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(-1, 4\) of input has a negative extent"):
        opcost.count(nn.Linear(D, OUT), shapes=(-1, D))


@pytest.mark.parametrize("shapes", [5, (1.5, 4), (True, 4), [(B, D), 5], {"input": 5}, {"input": {}}])
def test_what_is_not_a_shape_is_refused(shapes: Any) -> None:
    with pytest.raises(InputError, match="is not a shape"):
        opcost.count(nn.Linear(D, OUT), shapes=shapes)


def test_inputs_and_shapes_together_are_refused() -> None:
    with pytest.raises(InputError, match="both inputs and shapes"):
        opcost.count(nn.Linear(D, OUT), x(), shapes=(B, D))


def test_no_inputs_at_all_are_refused_with_what_is_needed() -> None:
    with pytest.raises(InputError, match=r"Identity\.forward\(input: .*\) needs inputs, and none were given") as caught:
        opcost.count(nn.Identity())
    assert "shapes=" in caught.value.hint
    assert "--input" in caught.value.hint


def test_too_many_and_too_few_inputs_are_refused() -> None:
    with pytest.raises(InputError, match=r"do not fit Linear\.forward.*too many positional"):
        opcost.count(nn.Linear(D, OUT), (x(), x()))
    with pytest.raises(InputError, match=r"do not fit Bilinear\.forward.*missing a required argument: 'input2'"):
        opcost.count(nn.Bilinear(D, D, OUT), x())


def test_a_hook_may_change_the_arguments_before_forward_sees_them() -> None:
    layer = nn.Linear(D, OUT)
    layer.register_forward_pre_hook(lambda module, args: args[:1])
    assert opcost.count(layer, (x(), x())).totals.macs == MACS


@pytest.mark.parametrize(
    "shapes",
    [
        {"batch": {"image": (B, D), "more": [(2,)]}},
        [{"image": (B, D), "more": [(2,)]}],
        {"batch.image": (B, D), "batch.more.0": (2,)},
        ["batch.image:5x4", "batch.more.0:2"],
        {"batch": {"image": "5x4", "more": ["2"]}},
    ],
    ids=str,
)
def test_shapes_may_be_nested_as_the_argument_is(shapes: Any) -> None:
    report = opcost.count(Takes(lambda batch: batch["image"] + batch["more"][0].sum()), shapes=shapes)
    assert report.totals.macs == MACS
    assert sorted(spec.shape or () for _, spec in report.inputs) == [(2,), (B, D)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"batch": (B, D), "batch.image": (B, D)}, "is inside of another input"),
        ({"batch.0": (B, D), "batch.2": (B, D)}, "without gaps, not 0, 2"),
        ({"batch.image": (B, D), "batch": {"image": (B, D)}}, "given twice"),
    ],
)
def test_nested_shapes_that_contradict_each_other_are_refused(shapes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opcost.count(Takes(lambda batch: batch["image"]), shapes=shapes)
