"""The sources whose results are frozen, room by room.

A room is a function that imports what it needs and gives its sources by name, each a call without arguments. Only the public
surface of opcost is used, and each of its functions is called in one place: `count`, `predict`, `traced` and the rest below.
"""

from __future__ import annotations

import gzip
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeAlias

from record import Unordered, command, page_data, plain, printed

Sources: TypeAlias = dict[str, Callable[[], Any]]
DATA = Path("tests", "data")  # from the root, so that no line breaks elsewhere in another checkout
TRACES = DATA / "traces"


# -- the calls of opcost: one place each ------------------------------------------------------------------------------


def count(source: Any, inputs: Any = None, **options: Any) -> Any:
    import opcost

    return opcost.count(source, inputs, **options)


def predict(source: Any, inputs: Any = None, **options: Any) -> Any:
    import opcost

    return opcost.predict(source, inputs, **options)


def traced(path: Path, **options: Any) -> Any:
    import opcost

    return opcost.read_profile(path, **options)


def queried(path: Path, **options: Any) -> Any:
    """The answer to a query of a trace."""
    import opcost

    return opcost.query(opcost.read_profile(path), **options)


def fit(source: Any, inputs: Any = None, **options: Any) -> Any:
    import opcost

    return opcost.fit(source, inputs, **options)


def sweep(source: Any, inputs: Any = None, **options: Any) -> Any:
    import opcost

    return opcost.sweep(source, inputs, **options)


def compared(*sources: Any, **options: Any) -> Any:
    import opcost

    return opcost.compare(*sources, **options)


def checked(source: Any, inputs: Any = None, **limits: Any) -> Any:
    import opcost

    return opcost.check(source, inputs, **limits)


def scanned(*paths: Path) -> Any:
    import opcost

    return opcost.scan(*paths)


def analyzed(*words: object) -> Any:
    return command("analyze", *words, "--width", 120)


def unordered(source: Callable[[], Any]) -> Callable[[], Any]:
    """The same, with autocast on a processor."""
    return lambda: Unordered(source())


def scratch(name: str, content: bytes | str = b"") -> Path:
    """A file of this name in a new folder."""
    path = Path(mkdtemp(), name)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# -- models -----------------------------------------------------------------------------------------------------------


def torch_room() -> Sources:
    import frozen_nets as nets

    def run(build: Callable[[], Any], inputs: Any, options: dict[str, Any]) -> Any:
        return count(build(), inputs, **options)

    sources: Sources = {name: partial(run, *case) for name, case in nets.CASES.items()}
    for name, build in nets.stateful().items():
        sources[f"stateful {name}"] = partial(run, build, nets.ROWS, {})
    sources["autocast"] = unordered(sources["autocast"])
    return sources


TIMM = """
resnet18:64 resnext26ts:64 regnetx_002:64 densenet121:64 vgg11_bn:64 mobilenetv2_050:64 mobilenetv3_small_050:64
mobilenetv4_conv_small_035:64 efficientnet_b0:64 efficientnetv2_rw_t:64 ghostnet_100:64 lcnet_035:64 convnext_atto:64
convnextv2_atto:64 test_convnext3:0 vit_tiny_patch16_224:0 test_vit3:0 deit3_small_patch16_224:0 eva02_tiny_patch14_224:0
swin_tiny_patch4_window7_224:0 levit_128s:0 cait_xxs24_224:0 xcit_tiny_12_p16_224:0 mixer_s32_224:0 poolformer_s12:64
mobilevit_xxs:64 repvgg_a0:64 fastvit_t8:64 edgenext_xx_small:64 inception_next_atto:64 coat_lite_tiny:0 nfnet_f0:64
""".split()
"""Architectures with the side of their images; 0 for their own."""


def timm_room() -> Sources:
    if find_spec("timm") is None:  # `timm:` imports it as opcost does, which repairs torchvision first
        raise ModuleNotFoundError(name="timm")

    def run(name: str, side: int) -> Any:
        return count(f"timm:{name}", **({"image": side} if side else {}))

    pairs = [(name, int(side)) for name, _, side in (each.partition(":") for each in TIMM)]
    sources: Sources = {name: partial(run, name, side) for name, side in pairs}
    sources["resnet18 training"] = partial(count, "timm:resnet18", image=64, batch=2, optimizer="adamw")
    sources["test_vit3 backward"] = partial(count, "timm:test_vit3", backward=True)
    return sources


SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "vocab_size": 99, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
DECODERS = (
    "llama mistral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 phi gpt_neox olmo2 granitemoe recurrent_gemma".split()
)
ENCODERS = "bert roberta albert electra deberta-v2".split()
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{name: (SMALL, {"tokens": 16}) for name in (*DECODERS, *ENCODERS)},
    "gpt2": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64}, {"tokens": 16}),
    "distilbert": ({"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99}, {"tokens": 16}),
    "t5": ({"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}, {"tokens": 16}),
    "bart": (
        {
            "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 99,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
        }, {"tokens": 16},
    ),
    "mamba": ({"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4}, {"tokens": 16}),
    "whisper": (
        {
            "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "vocab_size": 99,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 8,
            "max_source_positions": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
        }, {},
    ),
    "clip": (
        {
            "text_config": {**SMALL, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1},
            "vision_config": {**SMALL, "image_size": 32, "patch_size": 16}, "projection_dim": 16,
        }, {},
    ),
    "vit": ({**SMALL, "image_size": 32, "patch_size": 16}, {}),
    "dinov2": ({**SMALL, "image_size": 32, "patch_size": 16}, {}),
    "resnet": ({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, {"image": 32}),
    "convnext": ({"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, {"image": 32}),
    "wav2vec2": ({**SMALL, "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_conv_pos_embeddings": 16,
                  "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2}, {}),
}  # fmt: skip


def config(kind: str, **more: Any) -> str:
    """A configuration of a model in a file, as `count` takes it."""
    return f"hf:{scratch('config.json', json.dumps({'model_type': kind, **CONFIGS[kind][0], **more}))}"


def transformers_room() -> Sources:
    import transformers  # noqa: F401 - skips the room where it is missing

    sources: Sources = {name: lambda name=name: count(config(name), **CONFIGS[name][1]) for name in CONFIGS}
    causal = {"architectures": ["LlamaForCausalLM"]}
    for name, options in {
        "prefill": {"prefill": 16, "batch": 2},
        "decode": {"decode": 1, "cache": 24},
        "decode static": {"decode": 1, "cache": 24, "static": 32},
        "decode int8 cache": {"decode": 2, "cache": 24, "cache_dtype": "int8"},
        "training": {"tokens": 16, "optimizer": "adamw", "precision": "bf16-mixed"},
        "set": {"tokens": 16, "set": {"num_hidden_layers": 1}},
    }.items():
        sources[f"llama {name}"] = lambda options=options: count(config("llama", **causal), **options)
    sources["llama training"] = unordered(sources["llama training"])
    return sources


# -- files ------------------------------------------------------------------------------------------------------------


def onnx_room() -> Sources:
    import onnx
    from onnx_making import FLOAT, INT64, helper, integers, tensor, weight

    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    sources: Sources = {path.stem: partial(count, path) for path in sorted(light.glob("*.onnx"))}

    def made(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any], domains: str = "") -> Path:
        opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domains, 1)] if domains else [])]
        graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
        return scratch("net.onnx", helper.make_model(graph, opset_imports=opsets).SerializeToString())

    node = helper.make_node
    image, rows = tensor("x", "batch", 3, 8, 8), tensor("x", 4, 6)

    def conv() -> Path:
        layers = [
            node("Conv", ["x", "w", "b"], ["c"], "/stem/conv/Conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
            node("Relu", ["c"], ["r"], "/stem/act/Relu"),
            node("GlobalAveragePool", ["r"], ["g"], "/pool/GlobalAveragePool"),
            node("Flatten", ["g"], ["f"], "/Flatten"),
            node("Gemm", ["f", "fw", "fb"], ["y"], "/head/Gemm", transB=1),
        ]
        weights = [weight("w", 4, 3, 3, 3), weight("b", 4), weight("fw", 5, 4), weight("fb", 5)]
        return made(layers, [image], [tensor("y", "batch", 5)], weights)

    def quantized() -> Path:
        zero, scale = weight("z", 1, dtype="uint8"), weight("s", 1)
        zero.dims[:], scale.dims[:] = [], []
        layers = [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("MatMulInteger", ["q", "w", "z", "z"], ["m"]),
            node("Cast", ["m"], ["y"], to=FLOAT),
        ]
        return made(layers, [rows], [tensor("y", 4, 5)], [weight("w", 6, 5, dtype="uint8"), zero, scale])

    def attention() -> Path:
        layers = [
            node("MatMul", ["x", "wq"], ["q"]), node("MatMul", ["x", "wk"], ["k"]), node("Transpose", ["k"], ["t"],
                perm=[0, 2, 1]),
            node("MatMul", ["q", "t"], ["a"]), node("Softmax", ["a"], ["p"], axis=-1), node("MatMul", ["p", "x"], ["o"]),
            node("LayerNormalization", ["o", "g"], ["y"]),
        ]  # fmt: skip
        given = [tensor("x", "batch", "seq", 8)]
        return made(
            layers, given, [tensor("y", "batch", "seq", 8)], [weight("wq", 8, 8), weight("wk", 8, 8), weight("g", 8)]
        )

    def recurrent() -> Path:
        layers = [
            node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4),
            node("GRU", ["x", "gw", "gr"], ["z"], hidden_size=4),
        ]
        weights = [weight("w", 1, 16, 6), weight("r", 1, 16, 4), weight("gw", 1, 12, 6), weight("gr", 1, 12, 4)]
        return made(layers, [tensor("x", 5, 2, 6)], [tensor("y", 5, 1, 2, 4), tensor("z", 5, 1, 2, 4)], weights)

    def moves() -> Path:
        layers = [
            node("Reshape", ["x", "shape"], ["a"]), node("Slice", ["a", "from", "to"], ["b"]), node("Gather", ["b", "at"], ["c"]),
            node("Concat", ["c", "c"], ["d"], axis=0), node("Einsum", ["d", "d"], ["e"], equation="ij,kj->ik"),
            node("TopK", ["e", "k"], ["y", "i"]), node("ReduceMean", ["y"], ["m"]),
        ]  # fmt: skip
        weights = [
            integers("shape", 6, 4),
            integers("from", 0),
            integers("to", 5),
            integers("at", 0, 2),
            integers("k", 1),
        ]
        return made(layers, [rows], [tensor("m", 1, 1), tensor("i", 4, 1, kind=INT64)], weights)

    def branches() -> Path:
        one = helper.make_graph([node("MatMul", ["x", "w"], ["o"])], "then", [], [tensor("o", 4, 6)])
        other = helper.make_graph([node("Relu", ["x"], ["p"])], "else", [], [tensor("p", 4, 6)])
        layers = [node("If", ["c"], ["y"], then_branch=one, else_branch=other)]
        choice = tensor("c", kind=onnx.TensorProto.BOOL)
        return made(layers, [rows, choice], [tensor("y", 4, 6)], [weight("w", 6, 6)])

    def unknown() -> Path:
        return made([node("Strange", ["x"], ["y"], domain="odd")], [rows], [tensor("y", 4, 6)], [], "odd")

    def many() -> Path:
        import onnx_tool_model

        return scratch("many.onnx", onnx_tool_model.make().SerializeToString())

    for name, build, options in (
        ("conv", conv, {"options": {"dim": "batch=2"}}), ("conv open batch", conv, {}), ("quantized", quantized, {}),
        ("attention", attention, {"options": {"dim": "batch=2,seq=7"}}), ("recurrent", recurrent, {}), ("moves", moves, {}),
        ("branches", branches, {}), ("unknown operator", unknown, {}), ("many operators", many, {}),
    ):  # fmt: skip
        sources[name] = lambda build=build, options=options: count(build(), **options)
    return sources


def _zipped(archive: Path, suffix: str, *groups: str) -> dict[str, list[tuple[str, Path]]]:
    """Members of an archive as files, grouped by how their names begin."""
    with zipfile.ZipFile(archive) as opened:
        folder = Path(mkdtemp())
        names = sorted(name for name in opened.namelist() if name.endswith(suffix))
        for name in names:
            (folder / name).write_bytes(opened.read(name))
    paths = [(name.removesuffix(suffix), folder / name) for name in names]
    return {group: [(name, path) for name, path in paths if re.match(group, name)] for group in groups}


def _together(paths: list[tuple[str, Path]]) -> Any:
    """Totals, rows and coverage of many small files as one source."""
    found = {}
    for name, path in paths:
        report = count(path)
        rows = [
            [
                row.op.raw,
                row.op.kind,
                row.op.module,
                plain(row.op.attrs),
                plain(row.ins),
                plain(row.outs),
                plain(row.cost),
            ]
            for row in report.rows
        ]
        found[name] = [plain(report.totals), report.peak_bytes, rows, plain(report.coverage), plain(report.parameters)]
    return found


def _files(archive: Path, suffix: str, groups: str, singles: str) -> Sources:
    sources: Sources = {}
    for group, paths in _zipped(archive, suffix, *groups.split()).items():
        sources[f"all {group}"] = partial(_together, paths)
    for name, path in _zipped(archive, suffix, singles)[singles]:
        sources[name] = partial(count, path)
    return sources


def tflite_room() -> Sources:
    return _files(
        DATA / "tflite" / "operators.zip",
        ".tflite",
        "[a-j] keras [l-q] r [s-t] u [w-z]",
        "keras|conv_|while|if|signatures",
    )


def coreml_room() -> Sources:
    return _files(
        DATA / "coreml" / "models.zip",
        ".mlmodel",
        "mil_[a-c] mil_[e-l] mil_[m-r] mil_[s-z] torch_",
        "torch_|mil_(while|cond|lut4)",
    )


def pt2_room() -> Sources:
    import frozen_nets as nets
    import torch

    def run(build: Callable[[], Any], inputs: tuple[Any, ...], *, decomposed: bool = False, **options: Any) -> Any:
        program = torch.export.export(build().eval(), inputs, **options)
        path = scratch("net.pt2")
        torch.export.save(program.run_decompositions() if decomposed else program, path)
        return count(path)

    batch = torch.export.Dim("batch", min=2)
    dynamic = {"dynamic_shapes": ({0: batch},)}
    cases: dict[str, tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any]]] = {
        "small": (nets.Net, (nets.IMAGE,), {}),
        "small decomposed": (nets.Net, (nets.IMAGE,), {"decomposed": True}),
        "dynamic batch": (nets.mlp, (nets.SEQUENCE,), dynamic),
        "convolutions": (nets.convolutions, (nets.IMAGE,), {}),
        "attention": (nets.Attention, (nets.SEQUENCE,), {}),
        "language": (nets.Language, (nets.TOKENS,), {}),
        "functional": (nets.Functional, (torch.ones(2, 4, 6, 6),), {"strict": False}),
        "experts": (nets.Experts, (nets.SEQUENCE,), {}),
        "loop": (lambda: nets.Loop(4), (nets.ROWS,), {}),
    }
    return {name: partial(run, build, inputs, **options) for name, (build, inputs, options) in cases.items()}


SCRIPTED: dict[str, dict[str, Any]] = {
    "a_module_twice": {"shapes": (3, 8)}, "attention": {"shapes": (2, 5, 16)}, "chosen": {"shapes": (2, 4)},
    "convolutions": {"shapes": (2, 3, 16, 16)}, "fused_attention": {"shapes": (2, 5), "dtypes": "int64"},
    "recurrent": {"shapes": (5, 2, 4)}, "shapes": {"shapes": (2, 4, 6, 6)},
}  # fmt: skip


def torchscript_room() -> Sources:
    return {name: partial(count, DATA / "torchscript" / f"{name}.pt", **options) for name, options in SCRIPTED.items()}


def megengine_room() -> Sources:
    folder = DATA / "megengine"
    names = "dwnet_nogn.v1 dwnet_nogn.v2_fuse handlstm.v2 mlp.v2 qnet_qint8.v2 qnet_float.v1 resnet18_slim.v2_noopt two_io.v2"
    sources: Sources = {name: partial(count, folder / "mge" / f"{name}.mge") for name in names.split()}
    for path in sorted((folder / "parity").glob("*.mge")):
        sources[f"parity {path.stem}"] = partial(count, path)
    singles = sorted((path.stem, path) for path in (folder / "mge").glob("op_*.mge"))
    sources["all op_"] = partial(_together, singles)
    for group, paths in _zipped(folder / "operators.zip", ".mge", "[a-c]", "[d-k]", "[l-p]", "q", "r", "[s-z]").items():
        sources[f"all {group}"] = partial(_together, paths)
    sources["all odd settings"] = partial(_together, _zipped(folder / "odd_settings.zip", ".mge", "")[""])
    return sources


def mxnet_room() -> Sources:
    folder = DATA / "mxnet"

    def run(path: Path) -> Any:
        given = json.loads((path / "expected.json").read_text(encoding="utf-8")).get("inputs", {})
        return count(path / "model-symbol.json", shapes={name: tuple(shape) for name, shape in given.items()} or None)

    sources: Sources = {}
    for group in "zoo gluoncv thirdparty small adv legacy versions".split():
        for path in sorted((folder / group).glob("*/model-symbol.json")):
            if path.parent.joinpath("expected.json").exists() and path.parent.name != "cond":
                sources[f"{group} {path.parent.name}"] = partial(run, path.parent)

    def operators() -> Any:
        return {
            path.parent.name: plain(_summary(run(path.parent)))
            for path in sorted(folder.glob("ops/*/model-symbol.json"))
        }

    def _summary(report: Any) -> Any:
        return [report.totals, [[row.op.raw, row.ins, row.outs, row.cost] for row in report.rows], report.coverage]

    sources["all ops"] = operators
    for path in sorted((folder / "parity").glob("*-symbol.json")):
        sources[f"parity {path.stem}"] = partial(count, path, shapes=PARITY[path.stem.partition("-")[0]])
    return sources


PARITY = {
    "depthwise": {"data": (2, 3, 32, 32)}, "mlp": {"data": (2, 3, 8, 8)}, "resnet": {"data": (2, 3, 32, 32)},
    "transformer": {"data": (2, 10, 16)},
}  # fmt: skip


def checkpoint_room() -> Sources:
    import frozen_nets as nets
    import torch
    from checkpoint_making import write_gguf, write_safetensors, write_sharded

    layers = {
        f"model.layers.{layer}.{part}.weight": ("BF16", (32, 16)) for layer in range(2) for part in ("q", "k", "mlp.up")
    }
    declared = {
        "model.embed.weight": ("F32", (50, 16)),
        **layers,
        "head.weight": ("F8_E4M3", (50, 16)),
        "n": ("I64", ()),
    }
    experts = {f"model.layers.0.mlp.experts.{number}.w.weight": ("F16", (8, 16)) for number in range(4)}
    blocks = [
        ("token_embd.weight", (50, 32), 0, 50 * 32 * 4),
        ("blk.0.attn_q.weight", (32, 32), 2, 32 * 18),
        ("blk.0.norm.weight", (32,), 1, 64),
    ]
    keys = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64, "general.name": "tiny"}

    def saved(value: Any, name: str = "net.pt") -> Path:
        path = scratch(name)
        torch.save(value, path)
        return path

    def array() -> Path:
        import numpy as np

        path = scratch("m.npz")
        np.savez(path, a=np.zeros((3, 4), "float16"), b=np.zeros((), "int64"))
        return path

    def pickled() -> Path:
        import numpy as np

        return scratch("m.pkl", pickle.dumps({"conv.weight": np.zeros((4, 3, 3, 3), "float32")}))

    nested = {"model": nets.Net().state_dict(), "optimizer": {"state": {0: {"exp_avg": torch.zeros(3, 4)}}}, "epoch": 3}
    cases: dict[str, Callable[[], Path]] = {
        "safetensors": lambda: write_safetensors(scratch("m.safetensors"), declared),
        "safetensors experts": lambda: write_safetensors(scratch("m.safetensors"), {**declared, **experts}),
        "sharded": lambda: write_sharded(scratch("x").parent, [declared, experts]),
        "gguf": lambda: write_gguf(scratch("m.gguf"), keys, blocks),
        "gguf big endian": lambda: write_gguf(scratch("m.gguf"), keys, blocks, order=">"),
        "state dict": lambda: saved(nets.Net().state_dict()),
        "state dict tied": lambda: saved(nets.Language().state_dict()),
        "nested with optimizer": lambda: saved(nested),
        "half": lambda: saved(nets.Net().half().state_dict()),
        "numpy": array,
        "pickle": pickled,
        "torchscript": lambda: DATA / "torchscript" / "attention.pt",
        "megengine": lambda: DATA / "megengine" / "mge" / "mlp.v2.mge",
        **{
            f"mxnet {path.stem}": lambda path=path: path
            for path in sorted((DATA / "mxnet" / "params_formats").glob("v*.params"))
            if path.stem in ("v0_legacy", "v2_dtypes", "v2_sparse", "v3_np")
        },
    }  # fmt: skip
    sources: Sources = {name: lambda build=build: scanned(build()) for name, build in cases.items()}
    sources["command line"] = lambda: command("scan", cases["safetensors experts"](), "--width", 100)
    return sources


# -- traces -----------------------------------------------------------------------------------------------------------


def _unpacked(path: Path) -> Path:
    """A gzipped file as it was."""
    return scratch(path.name.removesuffix(".gz"), gzip.decompress(path.read_bytes()))


ARRIVALS = {0: (10, 40), 1: (25, 42), 2: (18, 60)}
"""When each rank enters two collectives, in microseconds; each ends 5 µs after the last one has come."""


def _ranks() -> Path:
    """A folder with the traces of three ranks."""
    folder = Path(mkdtemp())
    ends = [max(arrivals[place] for arrivals in ARRIVALS.values()) + 5 for place in range(2)]
    for rank, arrivals in ARRIVALS.items():
        events: list[dict[str, Any]] = []
        for place, (start, end) in enumerate(zip(arrivals, ends, strict=True)):
            args = {
                "device": rank, "stream": 20, "correlation": place, "Collective name": "allreduce", "Process Group Name": "0",
                "In msg nelems": 1024, "dtype": "Float", "Group size": 3,
            }  # fmt: skip
            events += [
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": place * 30, "dur": 5},
                {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": rank, "tid": 20, "ts": start,
                 "dur": end - start, "args": args},
            ]  # fmt: skip
        info = {"backend": "nccl", "rank": rank, "world_size": 3}
        content = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
        (folder / f"worker{9 - rank}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


TENSORRT = """[ { "count" : 10 }
, { "name" : "conv1.weight + Conv_0 + Relu_1", "timeMs" : 1.2345, "averageMs" : 0.12345, "medianMs" : 0.123, "percentage" : 60 }
, { "name" : "Reformatting CopyNode for Input Tensor 0 to fc", "timeMs" : 0.8, "averageMs" : 0.08, "percentage" : 40 }
]"""


EXAMPLE = Path("examples", "trace.json.gz")
QUERIES: dict[str, dict[str, Any]] = {
    "by kind": {"aggregate_by": "kind"}, "by module": {"aggregate_by": "module", "depth": 2},
    "by kernel": {"aggregate_by": "kernel"}, "by shape": {"aggregate_by": ("type", "shape")},
    "host": {"side": "host", "top": 20}, "waits": {"measure": "wait", "top": 20}, "groups": {"group_by": "kind", "top": 30},
    "where": {"where": 'time > 5us and kind == "matmul"'}, "percentiles": {"aggregate_by": "type", "percentiles": (10, 50, 90)},
    "a100 peaks": {"aggregate_by": "type", "device": "a100"}, "order": {"sort": "+flops", "top": 10, "causal": "half"},
}  # fmt: skip


def traces_room() -> Sources:
    files = {
        **{f"kineto {path.name.split('.')[0]}": path for path in sorted((TRACES / "kineto").glob("c*.json.gz"))
            if "key_av" not in path.name},
        "kineto example": EXAMPLE,
        **{f"xla {path.name.removesuffix('.gz')}": path for path in sorted((TRACES / "xla").glob("*.gz"))},
        **{f"onnxruntime {path.name.removesuffix('.json.gz')}": path for path in sorted((TRACES / "onnxruntime").glob("*.gz"))},
        **{f"mxnet {path.name.removesuffix('.json.gz')}": path for path in sorted((TRACES / "mxnet").glob("*.json.gz"))},
        **{f"megengine {path.name.removesuffix('.json.gz')}": path
            for path in sorted((DATA / "megengine" / "profile").glob("*.json.gz"))},
        **{f"openvino {path.name}": path for path in sorted((TRACES / "openvino").iterdir()) if "counters" in path.name
            or path.suffix == ".txt"},
    }  # fmt: skip
    sources: Sources = {name: partial(traced, path) for name, path in files.items()}
    for path in sorted((TRACES / "nsight").glob("*.sqlite.gz")):
        sources[f"nsight {path.name.split('.')[0]}"] = lambda path=path: traced(_unpacked(path))
    sources["rank"] = lambda: traced(_ranks() / "worker9.json")
    sources["tensorrt"] = lambda: traced(scratch("profile.json", TENSORRT))
    sources["kineto example timeline"] = partial(traced, EXAMPLE, timeline=True, executions=True)
    sources |= {f"query {name}": partial(queried, EXAMPLE, **options) for name, options in QUERIES.items()}
    for view in "breakdown communication memory critical-path launches".split():
        sources[f"view {view}"] = partial(analyzed, EXAMPLE, "--view", view)
    cpu = TRACES / "kineto" / "cpu_gpt_fwd_shapes_flops_mem_modules.json.gz"
    sources["view memory cpu"] = partial(analyzed, cpu, "--view", "memory")
    sources["view executions"] = partial(analyzed, EXAMPLE, "--executions", "--top", 15)
    sources["view ranks"] = lambda: analyzed(_ranks(), "--view", "communication", "--rank-cache", "none")
    sources["view ranks by rank"] = lambda: analyzed(_ranks(), "--aggregate-by", "rank", "--rank-cache", "none")
    sources["view critical path nsight"] = lambda: analyzed(
        _unpacked(TRACES / "nsight" / "steps.sqlite.gz"), "--view", "critical-path"
    )
    other = TRACES / "kineto" / "cuda_fwd_stack.json.gz"
    for by in "operator kind module kernel shape".split():
        sources[f"diff by {by}"] = partial(command, "compare", EXAMPLE, other, "--by", by, "--width", 120)
    return sources


# -- predictions ------------------------------------------------------------------------------------------------------


def predict_room() -> Sources:
    import frozen_nets as nets

    resnet, language, net = cache(nets.resnet), cache(nets.Language), cache(nets.Net)
    image = {"shapes": (8, 3, 64, 64)}
    sources: Sources = {
        f"resnet18 {device}": lambda device=device: predict(resnet(), device=device, **image)
        for device in "h200 h100 a100 b200 v100 t4 l4 mi300x rtx4090".split()
    }
    for execution in ("eager", "graph", "compiled"):
        sources[f"resnet18 {execution}"] = lambda execution=execution: predict(resnet(), execution=execution, **image)
        sources[f"language {execution}"] = lambda execution=execution: predict(
            language(), nets.TOKENS, execution=execution
        )
    small = {"architectures": ["LlamaForCausalLM"]}
    sources |= {
        "resnet18 bf16": lambda: predict(resnet(), precision="bfloat16", **image),
        "resnet18 training": lambda: predict(resnet(), optimizer="sgd", **image),
        "resnet18 training mixed": lambda: predict(resnet(), optimizer="adamw", precision="bf16-mixed", device="a100", **image),
        "language training": lambda: predict(language(), nets.TOKENS, optimizer="adamw", checkpoint="blocks.*", accumulate=2),
        "llama prefill": lambda: predict(config("llama", **small), prefill=16),
        "llama decode": lambda: predict(config("llama", **small), decode=1, cache=32, precision="bfloat16"),
        "llama generate": lambda: predict(config("llama", **small), prefill=16, generate=8, device="h100"),
        "onnx": lambda: predict(_light("light_squeezenet")),
        "megengine": lambda: predict(DATA / "megengine" / "mge" / "resnet18_slim.v1_fuse.mge", device="a100"),
        "fit memory": lambda: fit(net(), nets.IMAGE, memory="1GiB"),
        "fit device": lambda: fit(net(), nets.IMAGE, device="t4", advise=False),
        "fit tokens": lambda: fit(config("llama", **small), memory="64MiB", vary="tokens", advise=False),
        "fit no advice": lambda: fit(language(), nets.TOKENS, memory="16MiB", advise=False, backward=True),
        "sweep batch": lambda: sweep(net(), nets.IMAGE, vary={"batch": [1, 2, 4, 8]}),
        "sweep device": lambda: sweep(resnet(), vary="batch=1,2,4", device="h100", **image),
        "sweep two": lambda: sweep(config("llama", **small), vary={"batch": [1, 2], "tokens": [8, 16]}),
        "compare": lambda: compared(count(net(), nets.IMAGE), count(nets.convolutions(), nets.IMAGE)),
        "compare kinds": lambda: compared(count(net(), nets.IMAGE), count(net(), nets.IMAGE, backward=True), by="kind"),
        "compare modules": lambda: compared(resnet(), resnet(), by="module", depth=2, quantities=("macs", "params"), **image),
        "compare scans": lambda: compared(*(DATA / "torchscript" / f"{name}.pt" for name in ("attention", "chosen")),
            shapes=(2, 5, 16)),
        "check": lambda: checked(net(), nets.IMAGE, macs="<1G", params=1000, peak_bytes="<=1MiB"),
        "check latency": lambda: checked(resnet(), shapes=(1, 3, 64, 64), latency="<50ms", device="h100"),
        "mfu": lambda: command("mfu", "examples/resnet18.py:ResNet18", "--input", "8x3x64x64", "--step-time",
            "10ms", "--device", "h100"),
        "command line": lambda: command("predict", "examples/resnet18.py:ResNet18", "--input", "1x3x64x64"),
    }  # fmt: skip
    return sources


def _light(name: str) -> Path:
    import onnx

    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"


# -- peers ------------------------------------------------------------------------------------------------------------


def _timeless(text: str) -> str:
    """Without what a clock says: latencies, speeds, and how wide they are."""
    text = re.sub(r"[\d.]+(e[-+]\d+)? (m|u|)s\b *", "TIME ", text)
    text = re.sub(r"TIME = [\d.]+% latency, [\d.]+ [A-Z]?FLOPS", "TIME", text)
    text = re.sub(r"(fwd latency: +)[\d.]+ [A-Z]?FLOPS *", r"\1SPEED", text)
    return re.sub(r"(    fwd latency - )\{'\w+'", r"\1{CLASS", text)


def peers_room() -> Sources:  # noqa: PLR0915 - one short function for each peer
    import frozen_nets as nets
    import torch
    from frozen_nets import IMAGE, SEQUENCE, TOKENS, Attention, Language, Net, convolutions, mlp, resnet

    from opcost import compat  # noqa: F401 - the package that holds all of them

    size = tuple(IMAGE.shape)

    def peer(name: str) -> Any:
        import importlib

        return importlib.import_module(f"opcost.compat.{name}")

    def fvcore(build: Callable[[], Any], inputs: Any) -> Any:
        ours, model = peer("fvcore"), build()
        flops, activations = ours.FlopCountAnalysis(model, inputs), ours.ActivationCountAnalysis(model, inputs)
        print(ours.flop_count_table(flops, activations=activations))
        print(ours.flop_count_str(flops, activations))
        print(ours.parameter_count_table(model))
        parameters = dict(ours.parameter_count(model))
        return [flops.total(), flops.by_operator(), flops.by_module(), activations.by_module(), parameters]

    def mmengine(build: Callable[[], Any], inputs: Any) -> Any:
        found = peer("mmengine").get_model_complexity_info(build(), inputs=inputs)
        print(found.pop("out_table"), found.pop("out_arch"))
        return found

    def torchinfo(build: Callable[[], Any], inputs: Any, **options: Any) -> Any:
        columns = ("input_size", "output_size", "num_params", "params_percent", "kernel_size", "mult_adds", "trainable")
        found = peer("torchinfo").summary(build(), input_data=inputs, verbose=0, col_names=columns, **options)
        print(found)
        return [found.total_params, found.trainable_params, found.total_mult_adds, found.total_output_bytes]

    def deepspeed(build: Callable[[], Any], inputs: Any) -> Any:
        shown = printed(lambda: peer("deepspeed").get_model_profile(build(), args=[inputs]))
        print(_timeless(shown.out))
        return shown.value

    def torchstat() -> Any:
        with torch.device("meta"):
            model = Net()
        return peer("torchstat").stat(model, size[1:])

    def flop_counter(build: Callable[[], Any], inputs: Any, *, backward: bool = False) -> Any:
        model = build()
        with peer("flop_counter").FlopCounterMode(display=False, depth=3) as mode:
            out = model(inputs)
            if backward:
                out.sum().backward()
        print(mode.get_table())
        return [
            mode.get_total_flops(),
            {
                module: {str(op): amount for op, amount in each.items()}
                for module, each in mode.get_flop_counts().items()
            },
        ]

    def onnx_tool(path: Path) -> Any:
        return peer("onnx_tool").model_profile(str(path))

    def torchprofile(build: Callable[[], Any], inputs: Any) -> Any:
        ours = peer("torchprofile").profile_macs
        nodes = ours(build(), (inputs,), reduction=None)
        return [ours(build(), (inputs,)), [[node.operator, node.scope, macs] for node, macs in nodes.items()]]

    def lightning(build: Callable[[], Any], inputs: Any, depth: int) -> Any:
        model = build()
        model.example_input_array = inputs
        ours = peer("lightning")
        print(ours.ModelSummary(model, max_depth=depth))
        return ours.measure_flops(model, lambda: model(inputs), lambda out: out.sum())

    def module_stats(build: Callable[[], Any], shape: tuple[int, ...], **options: Any) -> Any:
        totals, details = peer("megengine").module_stats(build(), input_shapes=[shape], **options)
        lines = {part: [_measured(line) for line in getattr(details, part)] for part in details._fields}
        return [totals._asdict(), lines]

    def visualize(name: str, **options: Any) -> Any:
        totals, details = peer("megengine").visualize(DATA / "megengine" / "mge" / f"{name}.mge", None, **options)
        return [totals._asdict(), details._asdict()]

    def profile_analyze(name: str, *words: str) -> Any:
        peer("megengine.profile_analyze").main([str(DATA / "megengine" / "profile" / f"{name}.json.gz"), *words])

    def print_summary(folder: str) -> Any:
        path = DATA / "mxnet" / folder
        given = json.loads((path / "expected.json").read_text(encoding="utf-8"))["inputs"]
        shapes = {name: tuple(shape) for name, shape in given.items()}
        ours = peer("mxnet")
        ours.print_summary(path / "model-symbol.json", shapes)
        return ours.count_flops(path / "model-symbol.json", shapes)

    def ptflops(build: Callable[[], Any], inputs: Any, backend: str) -> Any:
        return peer("ptflops").get_model_complexity_info(build(), tuple(inputs.shape[1:]), backend=backend)

    def accelerate() -> Any:
        print(peer("accelerate").estimate_memory(Language()))

    def thop(build: Callable[[], Any], inputs: Any) -> Any:
        found = peer("thop").profile(build(), (inputs,), ret_layer_info=True)
        return [found, peer("thop").clever_format(found[:2])]

    calls: Sources = {
        "fvcore": lambda: fvcore(Net, IMAGE), "fvcore attention": lambda: fvcore(Attention, SEQUENCE),
        "fvcore resnet18": lambda: fvcore(resnet, IMAGE), "fvcore language": lambda: fvcore(Language, TOKENS),
        "mmengine": lambda: mmengine(Net, IMAGE), "mmengine language": lambda: mmengine(Language, TOKENS),
        "torchinfo": lambda: torchinfo(Net, IMAGE), "torchinfo language": lambda: torchinfo(Language, TOKENS, depth=4),
        "torchinfo resnet18": lambda: torchinfo(resnet, IMAGE, row_settings=("depth", "var_names", "ascii_only")),
        "torchinfo recurrent": lambda: torchinfo(nets.Recurrent, SEQUENCE),
        "torchstat": torchstat,
        "torchsummary": lambda: peer("torchsummary").summary(Net(), size[1:], device="cpu"),
        "torchsummary resnet18": lambda: peer("torchsummary").summary(resnet(), size[1:], 4, device="cpu"),
        "torch_summary": lambda: peer("torch_summary").summary(Net(), size[1:], verbose=2) and None,
        "torch_summary language": lambda: peer("torch_summary").summary(Language(), TOKENS, verbose=1, depth=4) and None,
        "lightning": lambda: lightning(Net, IMAGE, 1), "lightning deep": lambda: lightning(Language, TOKENS, -1),
        "pytorch_model_summary": lambda: peer("pytorch_model_summary").summary(
            Net(), IMAGE, show_input=True, show_hierarchical=True, print_summary=True, max_depth=None, show_parent_layers=True),
        "torchsummaryX": lambda: plain(peer("torchsummaryX").summary(Net(), IMAGE).to_dict()),
        "accelerate": accelerate,
        "thop": lambda: thop(Net, IMAGE), "thop resnet18": lambda: thop(resnet, IMAGE),
        "ptflops pytorch": lambda: ptflops(Net, IMAGE, "pytorch"), "ptflops aten": lambda: ptflops(convolutions, IMAGE, "aten"),
        "calflops": lambda: peer("calflops").calculate_flops(Net(), size),
        "calflops language": lambda: peer("calflops").calculate_flops(Language(), args=[TOKENS], include_backPropagation=True),
        "deepspeed": lambda: deepspeed(Net, IMAGE), "deepspeed attention": lambda: deepspeed(Attention, SEQUENCE),
        "flop_counter": lambda: flop_counter(Net, IMAGE, backward=True),
        "flop_counter attention": lambda: flop_counter(Attention, SEQUENCE),
        "torchprofile": lambda: torchprofile(Net, IMAGE), "torchprofile mlp": lambda: torchprofile(mlp, SEQUENCE),
        "onnx_tool squeezenet": lambda: onnx_tool(_light("light_squeezenet")),
        "onnx_tool shufflenet": lambda: onnx_tool(_light("light_shufflenet")),
        "megengine module_stats": lambda: module_stats(Net, size),
        "megengine module_stats resnet18": lambda: module_stats(resnet, size, bar_length_max=10),
        "megengine visualize": lambda: visualize("dwnet_nogn.v2"),
        "megengine visualize handlstm": lambda: visualize("handlstm.v2"),
        "megengine visualize quantized": lambda: visualize("qnet_qint8.v1", bar_length_max=8),
        "megengine profile_analyze": lambda: profile_analyze("resnet18_slim.v2", "-t", "5"),
        "megengine profile_analyze types": lambda: profile_analyze("dwnet_nogn.v2", "--aggregate-by", "type",
            "--aggregate", "sum", "-t", "10"),
        "megengine profile_analyze edges": lambda: profile_analyze("SYNTHETIC_edges", "-t", "5"),
        "mxnet print_summary": lambda: print_summary("small/tiny_resnet_v1"),
        "mxnet print_summary squeezenet": lambda: print_summary("zoo/squeezenet1_1"),
    }  # fmt: skip
    return {name: partial(printed, call) for name, call in calls.items()}


def _measured(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of MegEngine's statistics without what its random weights decide."""
    return {key: value for key, value in line.items() if key not in ("mean", "std", "min", "max")}


# -- views ------------------------------------------------------------------------------------------------------------


def views_room() -> Sources:
    import frozen_nets as nets

    @cache
    def results() -> dict[str, Any]:
        language = nets.Language()
        return {
            "report": count(nets.Net(), nets.IMAGE, backward=True),
            "language": count(language, nets.TOKENS),
            "answer": queried(EXAMPLE, aggregate_by="type"),
            "prediction": predict(nets.Net(), nets.IMAGE, device="h100").query(),
            "comparison": compared(count(nets.Net(), nets.IMAGE), count(nets.convolutions(), nets.IMAGE), by="module"),
            "fit": fit(language, nets.TOKENS, memory="64MiB"),
            "sweep": sweep(nets.Net(), nets.IMAGE, vary={"batch": [1, 2, 4]}),
            "scan": scanned(DATA / "torchscript" / "attention.pt"),
        }

    def shown(name: str, view: str, **options: Any) -> str:
        return str(results()[name].render(view, **options))

    def file(name: str, suffix: str) -> str:
        path = scratch(f"result.{suffix}")
        results()[name].save(path)
        text = path.read_text(encoding="utf-8")
        return json.dumps(page_data(text), indent=1, sort_keys=True) if suffix == "html" else text

    sources: Sources = {}
    for name in "report language answer prediction comparison fit sweep scan".split():
        for width in (80, 200):
            sources[f"{name} table {width}"] = partial(shown, name, "table", width=width)
        for view in ("md", "csv", "json"):
            sources[f"{name} {view}"] = partial(shown, name, view)
        sources[f"{name} html"] = partial(file, name, "html")
        sources[f"{name} notebook"] = lambda name=name: str(results()[name]._repr_html_())
    for name in ("report", "language"):
        sources[f"{name} arch"] = partial(shown, name, "arch")
        for view in ("memory", "text"):
            sources[f"{name} {view}"] = partial(shown, name, view, width=100)
    example = "examples/resnet18.py:ResNet18"
    sources["badge"] = lambda: command("count", example, "--input", "1x3x64x64", "--view", "badge")
    sources["command count"] = lambda: command("count", example, "--input", "1x3x64x64", "--depth", 2, "--width", 100)
    sources["command rules"] = lambda: command("rules")
    return sources


ROOMS: dict[str, Callable[[], Sources]] = {
    "torch": torch_room, "timm": timm_room, "transformers": transformers_room, "onnx": onnx_room, "tflite": tflite_room,
    "coreml": coreml_room, "pt2": pt2_room, "torchscript": torchscript_room, "megengine": megengine_room, "mxnet": mxnet_room,
    "checkpoint": checkpoint_room, "traces": traces_room, "predict": predict_room, "peers": peers_room, "views": views_room,
}  # fmt: skip
