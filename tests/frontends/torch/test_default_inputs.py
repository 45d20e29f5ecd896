"""Inputs that were not given: made from what the model and its library say, and the report names them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import InputError, UnknownName
from opcost.views.summary import heading_of

D, OUT = 4, 3


def seen(report: opcost.Report) -> dict[str, Any]:
    return {name: spec.shape for name, spec in report.inputs}


def said(report: opcost.Report) -> str:
    (text,) = [note.text for note in report.notes if note.code == "guessed-inputs"]
    return text


class Images(nn.Conv2d):
    """Says the size of its images as timm's models do."""

    def __init__(self) -> None:
        super().__init__(3, OUT, 1)
        self.default_cfg = {"input_size": (3, 8, 6)}


def test_the_report_says_which_inputs_were_made_and_how_to_change_them() -> None:
    report = opcost.count(Images())
    assert seen(report) == {"input": (1, 3, 8, 6)}
    assert report.totals.macs == 8 * 6 * 3 * OUT
    assert "input 1x3x8x6 float32, from its default_cfg" in said(report)
    assert "--batch" in said(report)
    assert heading_of(report)[1].split() == ["input", "input", "1x3x8x6", "float32", "(generated)"]


def test_inputs_that_were_given_are_not_spoken_of() -> None:
    assert not opcost.count(Images(), shapes=(1, 3, 8, 8)).notes


def test_batch_and_image_change_what_is_made() -> None:
    report = opcost.count(Images(), batch=2, image=5)
    assert seen(report) == {"input": (2, 3, 5, 5)}
    assert report.totals.macs == 2 * 5 * 5 * 3 * OUT


def test_sizes_and_inputs_together_are_refused() -> None:
    with pytest.raises(InputError, match="was given, and inputs too"):
        opcost.count(Images(), shapes=(1, 3, 8, 8), batch=2)


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_size_that_nothing_has_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match="must be a whole number above zero"):
        opcost.count(Images(), batch=size)


def test_a_size_of_a_model_about_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(InputError, match="what Bilinear takes is not known"):
        opcost.count(nn.Bilinear(D, D, OUT), batch=2)


def test_a_requested_size_is_that_of_what_the_first_layer_reads() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.layers = nn.Sequential(nn.Conv2d(5, OUT, 1, bias=False), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layers(x) * self.scale
            return y

    report = opcost.count(Own(), image=6, batch=2)
    assert seen(report) == {"x": (2, 5, 6, 6)}
    assert report.totals.macs == 2 * 6 * 6 * 5 * OUT
    assert "its first layer, a Conv2d" in said(report)
    words = opcost.count(nn.Sequential(nn.Embedding(9, D), nn.Linear(D, OUT)), tokens=7)
    assert words.totals.macs == 7 * D * OUT
    assert opcost.count(nn.Linear(D, OUT), batch=3).totals.macs == 3 * D * OUT
    with pytest.raises(InputError, match="image cannot be changed"):
        opcost.count(nn.Linear(D, OUT), image=3)


def test_an_argument_that_is_no_tensor_is_no_obstacle() -> None:
    class Flagged(Images):
        def forward(self, input: Tensor, twice: bool = False) -> Tensor:  # noqa: A002
            y = super().forward(input)
            return super().forward(input) + y if twice else y

    assert opcost.count(Flagged(), kwargs={"twice": True}).totals.macs == 2 * 8 * 6 * 3 * OUT


def test_a_guess_that_leaves_most_parameters_unread_is_none() -> None:
    class Halves(Images):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Linear(100, 100)

        def forward(self, input: Tensor, text: Tensor | None = None) -> Tensor:  # noqa: A002
            y = super().forward(input)
            return y if text is None else y + self.decoder(text).sum()

    own, unread = 3 * OUT + OUT, 100 * 100 + 100
    with pytest.raises(InputError, match=rf"leaves {unread / (own + unread):.0%} of the parameters.*in decoder"):
        opcost.count(Halves())
    assert opcost.count(Halves(), shapes=(1, 3, 8, 6)).totals.macs == 8 * 6 * 3 * OUT


def test_a_small_part_that_is_not_read_is_noted() -> None:
    class Mostly(Images):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 1, bias=False)

    assert "4 parameters of head are not read" in said(opcost.count(Mostly()))


# -- the layer that reads the inputs -----------------------------------------------------------------------------------


class Wave(nn.Module):
    """Adds the axis of channels itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, OUT, 400, 160, bias=False)

    def forward(self, wav: Tensor) -> Tensor:
        y: Tensor = self.layer(wav.unsqueeze(1))
        assert wav.dim() == 2
        return y


class Later(nn.Module):
    """Reads its image with the second of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.image = nn.Linear(7, OUT, bias=False), nn.Conv2d(5, OUT, 1, bias=False)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        y: Tensor = self.image(x) + self.time(t[:, None].expand(-1, 7))[..., None, None]
        return y


class Deep(nn.Module):
    """Reads its image with a layer after many others, of which none reads an input."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(width, width, bias=False) for width in range(11, 31)])
        self.stem = nn.Conv2d(3, 11, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.blocks[0](self.stem(x).mean((2, 3)))
        return y


class Cut(nn.Module):
    """As a layer of einops."""

    pattern = "b c (h p1) (w p2) -> b (h w) (p1 p2 c)"
    axes_lengths = {"p1": 4, "p2": 4}  # noqa: RUF012

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.unfold(x, 4, stride=4).transpose(1, 2)


class Patches(nn.Module):
    """As the models of vit-pytorch: the size is that of the table of positions, the channels are in the layer of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(Cut(), nn.LayerNorm(4 * 4 * 2), nn.Linear(4 * 4 * 2, D, bias=False))
        self.pos_embedding = nn.Parameter(torch.zeros(1, 5 * 5 + 1, D))

    def forward(self, img: Tensor) -> Tensor:
        y: Tensor = nn.functional.pad(self.patches(img), (0, 0, 1, 0)) + self.pos_embedding
        return y


class Sized(nn.Module):
    """Has the size of its images as an attribute, and cuts patches in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.image_size, self.patch_size = 12, 4
        self.layer = nn.Linear(4 * 4 * 3, D, bias=False)

    def forward(self, img: Tensor) -> Tensor:
        y: Tensor = self.layer(nn.functional.unfold(img, 4, stride=4).transpose(1, 2))
        return y


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(9, D), nn.Embedding(6, D)
        self.layer = nn.Linear(D, OUT, bias=False)
        self.max_seq_len = 6

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Tensor:
        y: Tensor = self.layer(self.table(idx) + self.places(torch.arange(idx.shape[1])))
        return y


class Finds(nn.Module):
    """As a detector of ultralytics."""

    def __init__(self) -> None:
        super().__init__()
        self.stride, self.layer = torch.tensor([8.0, 32.0]), nn.Conv2d(3, OUT, 32, 32, bias=False)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class Shell(nn.Module):
    """As `ultralytics.YOLO`, whose call is another thing than a run of its model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Finds()

    def __call__(self, source: Any = None) -> Any:
        raise AssertionError("this looks for images")


class HandsOn(nn.Module):
    """As peft without a type of task: names no argument."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base_model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.base_model(*args, **kwargs)


class InPlace(HandsOn):
    """Has no names for what it hands on."""

    def forward(self, *args: Any) -> Any:  # type: ignore[override]
        return self.base_model(*args)


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("model", "inputs", "macs"),
    [
        (flat(nn.Linear(D, OUT, bias=False), nn.ReLU()), {"input": (1, D)}, D * OUT),
        (flat(nn.Conv1d(1, OUT, 5, 5, bias=False)), {"input": (1, 1, 16_000)}, 16_000 // 5 * 5 * OUT),
        (flat(nn.Conv1d(12, OUT, 1, bias=False)), {"input": (1, 12, 1024)}, 1024 * 12 * OUT),
        (flat(nn.Conv3d(1, OUT, 8, 8, bias=False)), {"input": (1, 1, 96, 96, 96)}, 12**3 * 8**3 * OUT),
        (flat(nn.Conv3d(3, OUT, 1, 8, bias=False)), {"input": (1, 3, 16, 112, 112)}, 2 * 14 * 14 * 3 * OUT),
        (flat(nn.Embedding(9, D), nn.Linear(D, OUT, bias=False)), {"input": (1, 2048)}, 2048 * D * OUT),
        (flat(nn.BatchNorm2d(3), nn.Conv2d(3, OUT, 1, 2, bias=False)), {"input": (1, 3, 224, 224)}, 112**2 * 3 * OUT),
        (flat(nn.LayerNorm(D), nn.Linear(D, OUT, bias=False)), {"input": (1, 1024, D)}, 1024 * D * OUT),
        (
            flat(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(28 * 28, OUT, bias=False)),
            {"input": (1, 1, 28, 28)},
            28 * 28 * (1 + OUT),
        ),
        (flat(nn.Flatten(), nn.Linear(28 * 28, OUT, bias=False)), {"input": (1, 28 * 28)}, 28 * 28 * OUT),
        (Wave(), {"wav": (1, 16_000)}, ((16_000 - 400) // 160 + 1) * 400 * OUT),
        (Later(), {"x": (1, 5, 224, 224), "t": (1,)}, 224 * 224 * 5 * OUT + 7 * OUT),
        (Deep(), {"x": (1, 3, 224, 224)}, 224 * 224 * 3 * 11 + 11 * 11),
        (Patches(), {"img": (1, 2, 20, 20)}, 25 * 4 * 4 * 2 * D),
        (Sized(), {"img": (1, 3, 12, 12)}, 9 * 4 * 4 * 3 * D),
        (Words(), {"idx": (1, 6)}, 6 * D * OUT),
        (Finds(), {"x": (1, 3, 640, 640)}, 20 * 20 * 32 * 32 * 3 * OUT),
        (Shell(), {"x": (1, 3, 640, 640)}, 20 * 20 * 32 * 32 * 3 * OUT),
        (HandsOn(HandsOn(Images())), {"input0": (1, 3, 8, 6)}, 8 * 6 * 3 * OUT),
        (HandsOn(Words()), {"idx": (1, 6)}, 6 * D * OUT),
        (InPlace(Words()), {"input0": (1, 6)}, 6 * D * OUT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_inputs_are_what_the_layer_takes_that_reads_them(model: nn.Module, inputs: Any, macs: int) -> None:
    report = opcost.count(model)
    assert seen(report) == inputs
    assert report.totals.macs == macs
    assert "no inputs were given: " in said(report)


def test_a_recurrent_layer_has_its_batch_where_it_reads_it() -> None:
    assert seen(opcost.count(nn.LSTM(D, OUT), tokens=5, batch=2)) == {"input": (5, 2, D)}
    assert seen(opcost.count(nn.LSTM(D, OUT, batch_first=True), tokens=5, batch=2)) == {"input": (2, 5, D)}


def test_parameters_that_no_input_could_reach_are_no_reason_to_refuse() -> None:
    """An encoder of which a decoder uses the first stages only, as in PSPNet."""

    class Half(Images):
        def __init__(self) -> None:
            super().__init__()
            self.stage4 = nn.Linear(100, 100)

    report = opcost.count(Half())
    assert report.totals.macs == 8 * 6 * 3 * OUT
    assert "10,100 parameters of stage4 are not read" in said(report)


@pytest.mark.parametrize(
    ("layer", "example"),
    [
        (nn.Conv2d(5, OUT, 1), "--input 1x5x224x224"),
        (nn.Conv3d(1, OUT, 1), "--input 1x1x96x96x96"),
        (nn.Conv1d(1, OUT, 1), "--input 1x1x16000"),
        (nn.Embedding(9, D), "--input x:1x2048:int64"),
        (nn.Linear(D, OUT), f"--input 1x{D}"),
    ],
)
def test_where_nothing_fits_the_hint_is_of_the_kind_of_the_model(layer: nn.Module, example: str) -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("not of the size of 17")

    with pytest.raises(InputError, match=r"Picky fails with those generated from its first layer, a .* 17") as caught:
        opcost.count(Picky())
    assert caught.value.hint.endswith(example)


# -- forwards that need nothing ----------------------------------------------------------------------------------------


class Anything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.ones(D, D))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] @ self.own if args else None


class Nothing(Anything):
    def forward(self, x: Tensor | None = None) -> Any:  # type: ignore[override]
        return None if x is None else x @ self.own


class Each(nn.Module):
    """As HeteroConv of torch-geometric: the parts take what the names of keywords say."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(D, OUT)})

    def forward(self, **kwargs: Any) -> Any:
        return {name: part(kwargs[f"{name}_dict"]) for name, part in self.parts.items() if f"{name}_dict" in kwargs}


@pytest.mark.parametrize(
    ("model", "signature"),
    [(Anything(), r"\*args: .*, \*\*kwargs"), (Nothing(), "x: .* = None"), (Each(), r"\*\*kwargs")],
)
def test_a_forward_that_runs_on_nothing_needs_inputs(model: nn.Module, signature: str) -> None:
    with pytest.raises(InputError, match=rf"{type(model).__name__}\.forward\({signature}.*\) needs inputs") as caught:
        opcost.count(model)
    assert "inputs=" in caught.value.hint
    assert "--input" in caught.value.hint


def test_inputs_that_were_given_in_another_way_are_enough() -> None:
    assert opcost.count(Each(), kwargs={"a_dict": torch.ones(2, D)}).totals.macs == 2 * D * OUT
    assert opcost.count(Anything(), torch.ones(2, D)).totals.macs == 2 * D * D


def test_a_model_that_takes_no_inputs_is_counted() -> None:
    class Alone(Anything):
        def forward(self) -> Any:  # type: ignore[override]
            return self.own @ self.own

    class Steps(Anything):
        def forward(self, steps: int = 3) -> Any:  # type: ignore[override]
            return [self.own @ self.own for _ in range(steps)]

    alone = opcost.count(Alone())
    assert alone.totals.macs == D**3
    assert not alone.notes
    steps = opcost.count(Steps())
    assert steps.totals.macs == 3 * D**3
    assert "nothing, from the defaults of its forward" in said(steps)


# -- element types ----------------------------------------------------------------------------------------------------


def test_a_model_is_counted_in_another_type_and_stays_as_it_is() -> None:
    model = Images()
    report = opcost.count(model, dtype="bf16")
    assert report.totals.param_bytes == 2 * (3 * OUT + OUT)
    assert [spec.dtype for _, spec in report.inputs] == ["bfloat16"]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert report.totals.macs == opcost.count(model).totals.macs


def test_shapes_are_made_in_the_requested_type_too() -> None:
    report = opcost.count(nn.Linear(D, OUT), shapes=(2, D), dtype=torch.float16)
    assert [spec.dtype for _, spec in report.inputs] == ["float16"]


def test_a_type_in_which_no_model_computes_is_refused() -> None:
    with pytest.raises(InputError, match="cannot compute in int64"):
        opcost.count(Images(), dtype="int64")
    with pytest.raises(UnknownName, match="did you mean 'bf16'"):
        opcost.count(Images(), dtype="bf61")


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [((2, D), (2, D)), ([2, D], (2, D)), (((2, D),), [(2, D)]), (f"2x{D}", f"2x{D}")],
)
def test_a_shape_in_the_place_of_inputs_is_answered_with_shapes(written: Any, meant: Any) -> None:
    with pytest.raises(InputError, match=r"(numbers|a text) and not tensors") as caught:
        opcost.count(nn.Linear(D, OUT), written)
    assert f"shapes={meant!r};" in caught.value.hint
    assert opcost.count(nn.Linear(D, OUT), shapes=meant).totals.macs == 2 * D * OUT


def test_a_traced_module_without_inputs_is_refused_with_what_it_needs() -> None:
    pytest.importorskip(
        "torch.testing._internal.common_methods_invocations"
    )  # gives such methods a signature of anything
    traced = torch.jit.trace(nn.Linear(D, OUT), torch.rand(2, D))
    with pytest.raises(InputError, match="forward\\(input\\) needs inputs, and none were given"):
        opcost.count(traced)
    assert opcost.count(traced, shapes={"input": (2, D)}).totals.macs == 2 * D * OUT


def test_a_model_that_is_handed_over_cannot_be_set() -> None:
    with pytest.raises(InputError, match="only a model that a string names"):
        opcost.count(Images(), set={"depth": 3})


# -- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.zoo
@pytest.mark.parametrize(
    ("source", "sizes", "expected"),
    [
        ("torchvision:alexnet", {}, (1, 3, 224, 224)),
        ("torchvision:efficientnet_b1", {}, (1, 3, 240, 240)),
        ("torchvision:efficientnet_b1", {"batch": 2, "image": 64}, (2, 3, 64, 64)),
        ("torchvision:lraspp_mobilenet_v3_large", {}, (1, 3, 520, 520)),
        ("torchvision:r3d_18", {}, (1, 3, 16, 112, 112)),
        ("timm:resnet10t", {"batch": 3}, (3, 3, 176, 176)),
    ],
)
def test_a_library_of_image_models_says_the_size(source: str, sizes: Any, expected: tuple[int, ...]) -> None:
    pytest.importorskip(source.partition(":")[0])
    assert [spec.shape for _, spec in opcost.count(source, **sizes).inputs] == [expected]


@pytest.mark.zoo
def test_settings_reach_what_makes_the_model() -> None:
    pytest.importorskip("timm")
    width = 512
    plain, small = (opcost.count("timm:resnet18", set={"num_classes": n}, image=32) for n in (1000, 10))
    assert plain.totals.params - small.totals.params == 990 * (width + 1)


SMALL_TEXT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 99,
    "num_key_value_heads": 2,
}  # fmt: skip
SMALL_VISION = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 12,
    "patch_size": 4,
}  # fmt: skip


def small(name: str, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name)(**settings)


@pytest.mark.zoo
def test_a_language_model_reads_2048_tokens_or_as_many_as_it_can() -> None:
    transformers = pytest.importorskip("transformers")
    for most, expected in ((4096, 2048), (64, 64)):
        model = transformers.LlamaForCausalLM(small("LlamaConfig", max_position_embeddings=most, **SMALL_TEXT))
        assert seen(opcost.count(model)) == {"input_ids": (1, expected)}
    assert seen(opcost.count(model, tokens=7, batch=2)) == {"input_ids": (2, 7)}


@pytest.mark.zoo
def test_positions_for_padding_are_not_for_tokens() -> None:
    transformers = pytest.importorskip("transformers")
    settings = {key: value for key, value in SMALL_TEXT.items() if key != "num_key_value_heads"}
    model = transformers.RobertaModel(small("RobertaConfig", max_position_embeddings=34, pad_token_id=1, **settings))
    assert seen(opcost.count(model)) == {"input_ids": (1, 34 - 1 - 1)}


@pytest.mark.zoo
def test_an_image_and_a_text_are_both_read() -> None:
    transformers = pytest.importorskip("transformers")
    text = {**SMALL_TEXT, "max_position_embeddings": 20}
    model = transformers.CLIPModel(small("CLIPConfig", text_config=text, vision_config=SMALL_VISION))
    assert seen(opcost.count(model)) == {"pixel_values": (1, 3, 12, 12), "input_ids": (1, 20)}


@pytest.mark.zoo
def test_a_multimodal_model_gets_a_place_for_every_part_of_its_image() -> None:
    """Nine patches of the image are nine tokens among the text; the projector is read once for each of them."""
    transformers = pytest.importorskip("transformers")
    config = small(
        "LlavaConfig",
        text_config=small("LlamaConfig", max_position_embeddings=32, **SMALL_TEXT),
        vision_config=small("CLIPVisionConfig", **SMALL_VISION),
        image_token_index=98,
        vision_feature_layer=-1,
    )
    report = opcost.count(transformers.LlavaForConditionalGeneration(config))
    assert seen(report) == {"pixel_values": (1, 3, 12, 12), "input_ids": (1, 32)}
    projector = [
        row for row in report.rows if row.op.module.endswith("multi_modal_projector.linear_1") and row.cost.macs
    ]
    assert sum(row.cost.macs for row in projector) == 9 * 8 * 8


@pytest.mark.zoo
def test_speech_and_series_are_as_long_as_the_configuration_says() -> None:
    transformers = pytest.importorskip("transformers")
    whisper = small(
        "WhisperConfig", d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=8, decoder_ffn_dim=8, max_source_positions=10, max_target_positions=6, num_mel_bins=5, vocab_size=99,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    report = opcost.count(transformers.WhisperForConditionalGeneration(whisper))
    assert seen(report) == {"input_features": (1, 5, 2 * 10), "decoder_input_ids": (1, 6)}
    series = small(
        "PatchTSTConfig", context_length=24, num_input_channels=2, patch_length=4, d_model=8, num_hidden_layers=1
    )
    assert seen(opcost.count(transformers.PatchTSTModel(series)))["past_values"] == (1, 24, 2)


def test_a_model_with_several_main_inputs_is_no_riddle() -> None:
    """OneFormer names two, in a list."""
    from opcost.core.option import Sizes
    from opcost.frontends.torch.default_inputs.engine import InputMaker
    from opcost.frontends.torch.default_inputs.transformers import TransformersInputs

    class Two(nn.Module):
        main_input_name = ["pixel_values", "task_inputs"]  # noqa: RUF012
        input_modalities = ("image",)

        def __init__(self) -> None:
            super().__init__()
            self.config = type("Config", (), {"image_size": 16, "task_seq_len": 5, "__dict__": {}})()

        def forward(self, pixel_values: Tensor, task_inputs: Tensor) -> Tensor: ...

    made = TransformersInputs(Two(), InputMaker(Two(), Sizes(), lambda method, given: [])).all()
    assert {name: tuple(tensor.shape) for name, tensor in made.items()} == {
        "pixel_values": (1, 3, 16, 16), "task_inputs": (1, 5),
    }  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_fails_with_an_image_is_counted_on_a_text_alone(fails: bool) -> None:
    transformers = pytest.importorskip("transformers")
    words, width, tokens, side = 30, 8, 6, 4

    class Speaks(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig
        input_modalities = ("image", "text")

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.table, self.seen = nn.Embedding(words, width), nn.Linear(3 * side * side, width, bias=False)
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, input_ids: Tensor, pixel_values: Tensor | None = None) -> Tensor:
            x = self.table(input_ids)
            if pixel_values is not None:
                if fails:
                    raise ValueError("no image of this size")
                x = x + self.seen(pixel_values.flatten(1))[:, None]
            return self.head(x)

    config = transformers.PretrainedConfig(vocab_size=words, max_position_embeddings=tokens, image_size=side)
    report = opcost.count(Speaks(config).eval())
    head, image = tokens * width * words, 3 * side * side * width
    assert report.totals.macs == head + (0 if fails else image)
    assert seen(report) == {"input_ids": (1, tokens), **({} if fails else {"pixel_values": (1, 3, side, side)})}
    assert ("a text alone because the model fails with more" in said(report)) == fails
    assert ("no image of this size" in said(report)) == fails
