"""Every format that is read: good files of it, the ways to change them, and the function that reads them.

To add one: write a function that gives its good files, a function that does with a path what the command line would do
(read it and show what was read), and a line in FORMATS. Nothing is imported or read before it is needed.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import fuzz_calibration
import fuzz_changes as change
import fuzz_checkpoints as checkpoints
import fuzz_onnx
import fuzz_pt2
import fuzz_torchscript
import fuzz_traces
from fuzz_changes import Change

DATA = Path(__file__).resolve().parents[1] / "data"
SMALL = 32_000
"""Bytes of the largest file that is changed: more would only be more of the same."""


class Seed(NamedTuple):
    """A good file, and what else its `read` must know."""

    content: bytes
    given: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format."""

    name: str
    file: str
    """What the changed file is called."""
    seeds: Callable[[], Sequence[Seed]]
    changes: tuple[Change, ...]
    read: Callable[[Path, Any], None]
    seconds: float = 5.0
    """CPU time that reading may take; refusing a bomb takes part of it."""
    rare: tuple[Change, ...] = ()
    """Changes that are slow to make or to refuse, for one case in two hundred."""


# -- readers: read, and show what was read as the command line does ------------------------------------------------------


def shown(text: str) -> None:
    """What is printed must be text that can be printed."""
    text.encode("utf-8")


def count(path: Path, given: Any) -> None:
    import opcost

    report = opcost.count(path, **(given or {}))
    shown(report.render("text"))


def configuration(path: Path, given: Any) -> None:
    """As `opcost count hf:config.json` counts it."""
    import opcost

    shown(opcost.count(f"hf:{path}", mode="eval", **given).render("text"))


def parameters(path: Path, _given: Any) -> None:
    from opcost.frontends.mxnet.params import read_params

    shown(str(read_params(path)))


def input_data(path: Path, _given: Any) -> None:
    from opcost.frontends.input_data import read_input_data

    shown(str(read_input_data(path)))


def scan(path: Path, _given: Any) -> None:
    """As `opcost scan` shows it, and as a program would read it."""
    import opcost

    found = opcost.scan(path)
    shown(found.render("table"))
    shown(found.render("table", by="tensor", depth=3))
    shown(found.render("json"))


def index(path: Path, _given: Any) -> None:
    """With a shard beside it."""
    (path.parent / "a.safetensors").write_bytes(checkpoints.safetensors()[0])
    scan(path, None)


def report(path: Path, _given: Any) -> None:
    import opcost

    found = opcost.load_report(path)
    shown(found.render("text"))
    shown(found.render("table"))


def profile(path: Path, _given: Any, *, halves: bool = False) -> None:
    """As `opcost analyze` reads it; with `halves`, also what is before the damage."""
    import opcost
    from opcost.analysis.query import Question, query
    from opcost.compat.megengine.profile_analyze import analyze
    from opcost.errors import OpcostError

    found = None
    try:
        found = opcost.read_profile(path)
    except OpcostError:
        if not halves:
            raise
    found = found or opcost.read_profile(path, partial=True)
    answer = query(found, aggregate_by=found.usual_keys, sort="-time", top=10)
    shown(answer.render("table"))
    shown(answer.render("json"))
    if "megengine" in found.extra:
        shown(analyze(found, Question(top=3)))


def rank(path: Path, _given: Any) -> None:
    from opcost.traces.ranks.columns import reduce_file

    shown(str(reduce_file(str(path))))


# -- good files ----------------------------------------------------------------------------------------------------------


def dumps(version: str) -> list[Seed]:
    """Whole nets and single operators."""
    nets = [path.read_bytes() for path in sorted((DATA / "megengine" / "mge").glob(f"*.{version}*.mge"))]
    with zipfile.ZipFile(DATA / "megengine" / "operators.zip") as archive:
        operators = [archive.read(name) for name in sorted(archive.namelist()) if f".{version}" in name]
    found = [data for data in (*nets, *operators) if len(data) < SMALL]
    cases = [b"mgbtest0\x01\0\0\0" + data + data for data in found[::20]]
    return [Seed(data) for data in (*found, *cases)]


def programs() -> list[Seed]:
    return [Seed(content) for content in fuzz_pt2.programs()]


def tflite_models() -> list[Seed]:
    """Single operators, graphs that call others, signatures and variables, as TensorFlow writes them."""
    with zipfile.ZipFile(DATA / "tflite" / "operators.zip") as archive:
        found = [archive.read(name) for name in sorted(archive.namelist()) if name.endswith(".tflite")]
    return [Seed(content) for content in found]


def coreml_models() -> list[Seed]:
    """Programs and neural networks, as coremltools writes them."""
    with zipfile.ZipFile(DATA / "coreml" / "models.zip") as archive:
        found = [archive.read(name) for name in sorted(archive.namelist()) if name.endswith(".mlmodel")]
    return [Seed(content) for content in found]


def configurations() -> list[Seed]:
    """Small models of a few families, with weights that are never made."""
    words = {"shapes": {"input_ids": (1, 4)}}
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 30,
    }
    image = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "image_size": 8,
    }
    found: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"architectures": ["BertModel"], "model_type": "bert", **sizes}, words),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_key_value_heads": 1, **sizes}, words),
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}, words),
        (
            {"architectures": ["ViTModel"], "model_type": "vit", "patch_size": 4, **image},
            {"shapes": {"pixel_values": (1, 3, 8, 8)}},
        ),
        (
            {"architectures": ["TimmWrapperModel"], "model_type": "timm_wrapper", "architecture": "resnet10t"},
            {"shapes": {"pixel_values": (1, 3, 32, 32)}},
        ),
    ]  # fmt: skip
    return [Seed(json.dumps(config).encode(), given) for config, given in found]


def symbols() -> list[Seed]:
    found = []
    for path in sorted((DATA / "mxnet").glob("*/*/expected.json")):
        content = (path.parent / "model-symbol.json").read_bytes()
        expected = json.loads(path.read_text(encoding="utf-8"))
        if len(content) <= SMALL and "inputs" in expected:
            found.append(Seed(content, {"shapes": {name: tuple(shape) for name, shape in expected["inputs"].items()}}))
    return found


def parameter_files() -> list[Seed]:
    return [Seed(path.read_bytes()) for path in sorted((DATA / "mxnet" / "params_formats").glob("v*.params"))]


def parameter_archives() -> list[Seed]:
    """Archives as MXNet 2.0 writes them, also one with a sparse array."""
    paths = sorted((DATA / "mxnet").glob("versions/v2*/*.params"))
    sparse = io.BytesIO()
    with zipfile.ZipFile(sparse, "w") as archive:
        for name, descr, shape, content in (
            ("w/data", "<f4", "(2, 4)", bytes(32)), ("w/indices", "<i8", "(2,)", bytes(16)),
            ("w/shape", "<i8", "(2,)", struct.pack("<2q", 6, 4)), ("w/format", "|u1", "(10,)", b"row_sparse"),
        ):  # fmt: skip
            archive.writestr(f"{name}.npy", _npy(descr, shape, content))
    return [Seed(path.read_bytes()) for path in paths if path.stat().st_size < SMALL] + [Seed(sparse.getvalue())]


def _npy(descr: str, shape: str, content: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


def arrays() -> list[Seed]:
    return [
        Seed(_npy(*one)) for one in (("<f4", "(2, 3)", bytes(24)), ("|u1", "(5,)", bytes(5)), ("<f8", "()", bytes(8)))
    ]


def input_archives() -> list[Seed]:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for place, seed in enumerate(arrays()):
            archive.writestr(f"input{place}.npy", seed.content)
    return [Seed(found.getvalue())]


def pickles() -> list[Seed]:
    import numpy as np

    one = np.zeros((2, 3), "float32")
    several = {"data": one, "label": np.zeros(4, "int64"), "none": np.zeros((0, 2), "uint8")}
    return [Seed(pickle.dumps(value, protocol)) for value in (one, several) for protocol in range(6)]


def reports() -> list[Seed]:
    import opcost

    found = [
        opcost.count(DATA / "megengine" / "mge" / name) for name in ("mlp.v2.mge", "op_rnncell.v2.mge", "two_io.v1.mge")
    ]
    return [Seed(one.render("json").encode()) for one in found]


def own_profiles() -> list[Seed]:
    import opcost
    from opcost.core.profile_schema import dumps as written

    paths = (
        DATA / "megengine" / "profile" / "mlp.v2.json.gz",
        DATA / "traces" / "mxnet" / "resnet18_hybrid.aggregate.json",
    )
    graph = opcost.read_profile(DATA / "traces" / "kineto" / "cuda_cudagraph.json.gz")
    return [Seed(written(found).encode()) for found in (*map(opcost.read_profile, paths), graph)]


def traces(*patterns: str, **limits: int) -> list[Seed]:
    return [Seed(content) for content in fuzz_traces.traces(*patterns, **limits)]


def seeds_of(make: Callable[[], list[bytes]]) -> list[Seed]:
    return [Seed(content) for content in make()]


# -- the formats -----------------------------------------------------------------------------------------------------------

_JSON = (change.json_structure, change.json_structure, change.json_text)
_LARGE = (change.json_large,)
_KINETO_HEAD = b'{"schemaVersion": 1, "traceEvents": ['
_KINETO_EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5, "dur": 2},'
_ORT_EVENT = b'{"cat": "Session", "name": "model_run", "ts": 0, "dur": 90, "args": {}},'
_MXNET_HEAD = b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "cat": "operator"},'


def _bombs(head: bytes, event: bytes) -> tuple[Change, ...]:
    """The same event for ever, an endless text, an endless number, and nothing but brackets."""
    begun = ((b'{"name": "', b"x"), (b'{"ts": ', b"1"), (b'{"args": ', b"["))
    plain = (event, b"[],", b"{},", b" ", b"\0", b"9")
    return (
        *(change.bomb(head, filling) for filling in plain),
        *(change.bomb(head + beginning, filling) for beginning, filling in begun),
    )


_KERAS = Format(
    name="keras", file="m.h5", seeds=partial(seeds_of, checkpoints.keras), changes=(change.some_bytes,), read=scan
)  # fmt: skip
"""Where h5py is installed, which reads it."""

FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        Format(name="megengine v1", file="net.mge", seeds=partial(dumps, "v1"), changes=(change.some_bytes,), read=count),
        Format(name="megengine v2", file="net.mge", seeds=partial(dumps, "v2"), changes=(change.some_bytes,), read=count),
        Format(
            name="megengine profile", file="profile.json", seeds=partial(traces, "megengine/profile/*.gz", most=80),
            changes=_JSON,
            read=partial(profile, halves=True), rare=_bombs(b'{"profiler": {"device": {"1": [', b'{"x": {"start": 1}},') + _LARGE,
        ),
        Format(name="mxnet symbol", file="net-symbol.json", seeds=symbols, changes=_JSON, read=count, rare=_LARGE),
        Format(name="mxnet params", file="net.params", seeds=parameter_files, changes=(change.some_bytes,), read=parameters),
        Format(name="mxnet npz", file="net.params", seeds=parameter_archives, changes=(change.archive,), read=parameters),
        Format(name="npy", file="data.npy", seeds=arrays, changes=(change.array,), read=input_data),
        Format(name="npz", file="data.npz", seeds=input_archives, changes=(change.archive,), read=input_data),
        Format(name="pickle", file="data.pkl", seeds=pickles, changes=(change.pickle_steps,), read=input_data),
        Format(
            name="pt2", file="program.pt2", seeds=programs, read=count,
            changes=(fuzz_pt2.changed_structure, fuzz_pt2.changed_structure, change.some_bytes, change.archive),
        ),
        Format(name="onnx", file="net.onnx", seeds=partial(seeds_of, fuzz_onnx.models), changes=(change.some_bytes,), read=count),
        Format(
            name="torchscript", file="net.pt", read=count,
            seeds=lambda: [Seed(content, given) for content, given in fuzz_torchscript.models()],
            changes=(fuzz_torchscript.changed_script, fuzz_torchscript.changed_script, change.some_bytes, change.archive),
        ),
        Format(name="coreml", file="net.mlmodel", seeds=coreml_models, changes=(change.some_bytes,), read=count),
        Format(name="tflite", file="net.tflite", seeds=tflite_models, changes=(change.some_bytes,), read=count),
        Format(
            name="hf", file="config.json", seeds=configurations, changes=_JSON, read=configuration, rare=_LARGE,
            seconds=40.0,  # a change may declare a thousand layers, which are made and counted
        ),
        Format(
            name="safetensors", file="m.safetensors", seeds=partial(seeds_of, checkpoints.safetensors), read=scan,
            changes=(checkpoints.changed_header, checkpoints.changed_header, change.some_bytes),
        ),
        Format(
            name="safetensors index", file="m.safetensors.index.json", seeds=partial(seeds_of, checkpoints.indexes), read=index,
            changes=_JSON, rare=_LARGE,
        ),
        Format(name="gguf", file="m.gguf", seeds=partial(seeds_of, checkpoints.gguf), changes=(change.some_bytes,), read=scan),
        Format(
            name="pytorch", file="m.pt", seeds=partial(seeds_of, checkpoints.archives), read=scan,
            changes=(checkpoints.changed_pickle, checkpoints.changed_pickle, change.some_bytes, change.archive),
        ),
        Format(
            name="pytorch stack", file="m.pth", seeds=partial(seeds_of, checkpoints.stacks), read=scan,
            changes=(checkpoints.changed_stack,),
        ),
        Format(
            name="onnx weights", file="net.onnx", seeds=partial(seeds_of, fuzz_onnx.models), changes=(change.some_bytes,),
            read=scan,
        ),
        *((_KERAS,) if find_spec("h5py") else ()),
        Format(name="scanned arrays", file="m.npz", seeds=input_archives, changes=(change.archive,), read=scan),
        Format(name="report", file="report.json", seeds=reports, changes=_JSON, read=report, rare=_LARGE),
        Format(
            name="calibration", file="c.json", seeds=lambda: [Seed(text) for text in fuzz_calibration.files()], changes=_JSON,
            read=fuzz_calibration.fit, rare=_LARGE,
        ),
        Format(
            name="profile", file="profile.json", seeds=own_profiles, changes=_JSON, read=profile,
            rare=_bombs(b'{"schema": "opcost.profile/1", "texts": [', b'"x",') + _LARGE,
        ),
        Format(
            name="kineto", file="trace.json", seeds=partial(traces, "traces/kineto/c*[nsh].json.gz"), changes=_JSON,
            read=partial(profile, halves=True), rare=_LARGE,
        ),
        Format(
            name="kineto gz", file="trace.json.gz", seeds=partial(traces, "traces/kineto/cuda_*.json.gz"),
            changes=tuple(map(change.packed, _JSON)), read=partial(profile, halves=True),
            rare=_bombs(_KINETO_HEAD, _KINETO_EVENT) + _LARGE,
            seconds=40.0,  # a gigabyte of good events is a trace that is read, here twice: whole, and what is before its end
        ),
        Format(
            name="kineto rank", file="rank0.json", seeds=partial(traces, "traces/kineto/cuda_*.json.gz"), changes=_JSON,
            read=rank, rare=_LARGE,
        ),
        Format(
            name="nsight", file="export.sqlite", seeds=partial(traces, "traces/nsight/*.sqlite.gz", largest=1 << 18),
            changes=(change.some_bytes,), read=profile,
        ),
        Format(
            name="onnxruntime", file="trace.json", seeds=partial(traces, "traces/onnxruntime/*.gz"),
            changes=(*_JSON, change.packed(change.json_structure)), read=partial(profile, halves=True),
            rare=_bombs(b"[" + _ORT_EVENT, _ORT_EVENT) + _LARGE,
        ),
        Format(
            name="mxnet trace", file="trace.json", seeds=partial(traces, "traces/mxnet/*.json*"), changes=_JSON,
            read=partial(profile, halves=True), rare=_bombs(_MXNET_HEAD, b'{"cat": "operator", "ph": "B", "ts": 1},') + _LARGE,
        ),
        Format(
            name="mxnet table", file="table.txt", seeds=partial(traces, "traces/mxnet/*.txt"), changes=(change.some_bytes,),
            read=profile, rare=_bombs(b"Profile Statistics\n", b"x 1 1.0 1.0 1.0 1.0\n"),
        ),
        Format(
            name="openvino", file="counters.json", seeds=partial(traces, "traces/openvino/*counters*.json"), changes=_JSON,
            read=profile, rare=_bombs(b'{"report_type": "average", "avg_performance": [', b'{"nodes": []},') + _LARGE,
        ),
        Format(
            name="openvino csv", file="counters.csv",
            seeds=partial(traces, "traces/openvino/*rs_report.csv", "traces/openvino/*.txt"),
            changes=(change.some_bytes,), read=partial(profile, halves=True),
        ),
        Format(
            name="xla", file="vm.xplane.pb", seeds=partial(traces, "traces/xla/*.pb.gz"), changes=(change.some_bytes,),
            read=profile,
        ),
        Format(
            name="xla trace", file="vm.trace.json", seeds=partial(traces, "traces/xla/*.json.gz", most=200), changes=_JSON,
            read=partial(profile, halves=True), rare=_LARGE,
        ),
        Format(
            name="tensorrt", file="layers.json", seeds=partial(seeds_of, fuzz_traces.tensorrt), changes=_JSON,
            read=partial(profile, halves=True),
            rare=_bombs(b'[{"count": 1},', b'{"name": "x", "timeMs": 1},') + _LARGE,
        ),
    )
}  # fmt: skip
