"""Large files for the benchmarks of reading: a MegEngine dump, Kineto traces, and checkpoints whose data is a hole.

The dump has the operators, names and shapes that MegEngine 1.13.0 writes for a ResNet-18 with `optimize_for_inference=False`,
and zeros for weights; it needs the `flatbuffers` package. A trace is a small real one copied many times: each copy is moved in
time, and its correlation and External ids with it, so that its kernels belong to its own operators. Checkpoints are Llama 3.1
of 405B in 190 shards that declare 812 GB, a mixture of experts with 94,000 tensors in 160 shards, and a GGUF with 128,256
tokens.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import flatbuffers

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
SMALL_DUMP = DATA / "megengine" / "mge" / "mlp.v2.mge"
SMALL_TRACE = DATA / "traces" / "kineto" / "cuda_fwd_stack.json.gz"

Shape = tuple[int, ...]
Put = Callable[["flatbuffers.Builder", int], None]


# -- MegEngine ------------------------------------------------------------------------------------------------------------

VERSION = 101300
CONVOLUTION, POOLING, BATCH_NORM, ELEMWISE, MATRIX_MUL, OPTIONAL_AXIS = 3, 9, 11, 17, 20, 54
"""Tags of the tables that hold the settings of an operator."""
RELU, ADD = 0, 16
INT32 = 4
NO_DEFAULT = 2**32 - 1
AVERAGE, INFERENCE, PER_CHANNEL = 1, 1, 2


class Dump:
    """Operators in order, each with the numbers of the variables that it reads and makes."""

    def __init__(self) -> None:
        import flatbuffers

        self._builder = flatbuffers.Builder(1 << 20)
        self._operators: list[int] = []
        self._variables: list[tuple[str, Shape]] = []

    def shape(self, variable: int) -> Shape:
        return self._variables[variable][1]

    def add(
        self,
        kind: str,
        name: str,
        inputs: Sequence[int],
        *shapes: Shape,
        settings: tuple[int, Sequence[int]] | None = None,
        data: bytes | None = None,
        dtype: int = 0,
    ) -> int:
        """Write an operator with a result for each shape, and return the last of them."""
        first = len(self._variables)
        self._variables += [(name, shape) for shape in shapes]
        outputs = range(first, first + len(shapes))
        build = self._builder
        fields: dict[int, Put] = {
            0: _offset(build.CreateString(kind)),
            7: _offset(self._numbers(inputs)),
            8: _offset(self._numbers(outputs)),
        }
        if settings is not None:
            tag, numbers = settings
            table = self._table({slot: _number(number) for slot, number in enumerate(numbers)})
            fields |= {3: _byte(tag), 4: _offset(table)}
        if kind in ("ImmutableTensor", "Host2DeviceCopy"):
            fields[11] = _offset(self._vector([self._tensor(name, shapes[0], data, dtype)]))
        self._operators.append(self._table(fields))
        return outputs[-1]

    def write(self, path: Path, result: int) -> None:
        variables = [self._table(self._named(name, shape)) for name, shape in self._variables]
        output = self._table({0: _number(result)})
        root = self._table(
            {
                0: _number(VERSION),
                1: _number(2),
                2: _offset(self._vector(self._operators)),
                3: _offset(self._vector(variables)),
                4: _offset(self._vector([output])),
            }
        )
        self._builder.FinishSizePrefixed(root, file_identifier=b"mgv2")
        path.write_bytes(self._builder.Output())

    def _tensor(self, name: str, shape: Shape, data: bytes | None, dtype: int) -> int:
        stored = {} if data is None else {6: _offset(self._builder.CreateByteVector(data))}
        return self._table({**self._named(name, shape), 3: _offset(self._table({0: _byte(dtype)})), **stored})

    def _named(self, name: str, shape: Shape) -> dict[int, Put]:
        return {0: _offset(self._builder.CreateString(name)), 1: _offset(self._numbers(shape))}

    def _table(self, fields: dict[int, Put]) -> int:
        self._builder.StartObject(max(fields, default=-1) + 1)
        for slot, put in fields.items():
            put(self._builder, slot)
        return self._builder.EndObject()

    def _numbers(self, numbers: Sequence[int]) -> int:
        self._builder.StartVector(4, len(numbers), 4)
        for number in reversed(numbers):
            self._builder.PrependUint32(number)
        return self._builder.EndVector()

    def _vector(self, tables: Sequence[int]) -> int:
        self._builder.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            self._builder.PrependUOffsetTRelative(table)
        return self._builder.EndVector()


def _offset(position: int) -> Put:
    return lambda builder, slot: builder.PrependUOffsetTRelativeSlot(slot, position, 0)


def _number(number: int) -> Put:
    return lambda builder, slot: builder.PrependUint32Slot(slot, number, NO_DEFAULT)


def _byte(number: int) -> Put:
    return lambda builder, slot: builder.PrependUint8Slot(slot, number, 0)


class ResNet18:
    """A full-width ResNet-18, layer by layer."""

    def __init__(self, batch: int = 1, size: int = 224) -> None:
        self.dump = dump = Dump()
        x = dump.add("Host2DeviceCopy", "data", (), (batch, 3, size, size))
        x = self.relu("relu", self.norm("bn1", self.conv("conv1", x, 64, 7, 2)))
        x = self.pool("maxpool", x, mode=0, window=3, stride=2, pad=1)
        for level in range(4):
            for block in range(2):
                x = self.block(f"layer{level + 1}.{block}", x, 64 << level, 2 if level and not block else 1)
        x = self.pool("pool", x, mode=AVERAGE, window=7, stride=7, pad=0)
        target = dump.add("ImmutableTensor", "target", (), (2,), data=pack("<2i", batch, 512), dtype=INT32)
        x = dump.add("Reshape", "Reshape", (x, target), (batch, 512), settings=(OPTIONAL_AXIS, (7,)))
        weight = self.weight("fc.weight", (512, 1000))
        x = dump.add("MatrixMul", "fc.MatrixMul", (x, weight), (batch, 1000), settings=(MATRIX_MUL, ()))
        self.result = self.elemwise("fc.ADD", ADD, x, self.weight("fc.bias", (1000,)))

    def weight(self, name: str, shape: Shape) -> int:
        return self.dump.add("ImmutableTensor", name, (), shape, data=bytes(4 * prod(shape)))

    def conv(self, name: str, x: int, channels: int, kernel: int, stride: int) -> int:
        batch, before, height, width = self.dump.shape(x)
        filters = self.weight(f"{name}.weight", (channels, before, kernel, kernel))
        pad = kernel // 2
        plane = ((extent + 2 * pad - kernel) // stride + 1 for extent in (height, width))
        settings = (CONVOLUTION, (0, pad, pad, stride, stride))
        return self.dump.add(
            "ConvolutionV2", f"{name}.Convolution", (x, filters), (batch, channels, *plane), settings=settings
        )

    def norm(self, name: str, x: int) -> int:
        """For inference: the statistics are stored, and the results that only training needs are empty."""
        shape = self.dump.shape(x)
        per_channel = (1, shape[1], 1, 1)
        names = ("weight", "bias", "running_mean", "running_var")
        stored = [self.weight(f"{name}.{part}", per_channel) for part in names]
        settings = (BATCH_NORM, (PER_CHANNEL, INFERENCE))
        shapes = (per_channel, per_channel, (0,), shape)
        return self.dump.add("BatchNormV1", f"{name}.BatchNorm", (x, *stored), *shapes, settings=settings)

    def relu(self, name: str, x: int) -> int:
        return self.elemwise(name, RELU, x)

    def elemwise(self, name: str, mode: int, *inputs: int) -> int:
        return self.dump.add("Elemwise", name, inputs, self.dump.shape(inputs[0]), settings=(ELEMWISE, (mode,)))

    def pool(self, name: str, x: int, *, mode: int, window: int, stride: int, pad: int) -> int:
        batch, channels, *plane = self.dump.shape(x)
        after = ((extent + 2 * pad - window) // stride + 1 for extent in plane)
        settings = (POOLING, (mode, pad, pad, stride, stride, window, window))
        return self.dump.add("PoolingV1", f"{name}.Pooling", (x,), (batch, channels, *after), settings=settings)

    def block(self, name: str, x: int, channels: int, stride: int) -> int:
        y = self.relu(f"{name}.relu1", self.norm(f"{name}.bn1", self.conv(f"{name}.conv1", x, channels, 3, stride)))
        y = self.norm(f"{name}.bn2", self.conv(f"{name}.conv2", y, channels, 3, 1))
        if stride > 1:
            x = self.norm(f"{name}.downsample.1", self.conv(f"{name}.downsample.0", x, channels, 1, stride))
        return self.relu(f"{name}.relu2", self.elemwise(f"{name}.ADD", ADD, y, x))


# -- Kineto ----------------------------------------------------------------------------------------------------------------

NUMBERED = ("correlation", "External id", "Ev Idx", "Python id", "Python parent id")


def copies(trace: dict[str, Any]) -> Iterator[bytes]:
    """The events of one copy after another, without end, in the text layout of the profiler itself."""
    events = trace["traceEvents"]
    timed = [event for event in events if event.get("ph") == "X"]
    span = int(max(event["ts"] + event["dur"] for event in timed) - min(event["ts"] for event in timed)) + 1000
    ids = 1 + max(
        (event["args"][key] for event in events for key in NUMBERED if isinstance(event.get("args", {}).get(key), int)),
        default=0,
    )
    number = 0
    while True:
        for event in events:
            if not number or event.get("ph") != "M":
                yield _write(event, number, span, ids).encode()
        number += 1


def _write(event: dict[str, Any], number: int, span: int, ids: int) -> str:
    fields = []
    for key in ("ph", "id", "cat", "s", "name", "pid", "tid", "ts", "dur", "bp"):
        if key not in event:
            continue
        value = event[key]
        if key in {"ts", "dur"}:
            text = f"{value + number * span if key == 'ts' else value:.3f}"
        elif key == "id":
            text = str(value + number * ids)
        else:
            text = json.dumps(value)
        fields.append(f'    "{key}": {text}')
    text = "  {\n" + ",\n".join(fields)
    if args := event.get("args"):
        moved = {
            key: value + number * ids if key in NUMBERED and isinstance(value, int) else value
            for key, value in args.items()
        }
        text += '\n    ,\n    "args": {\n      ' + json.dumps(moved)[1:-1] + "\n    }"
    return text + "\n  }"


def write_trace(golden: Path, target: Path, size: int) -> int:
    """Write a trace of at least this many bytes, and return the number of its events."""
    trace = json.loads(gzip.decompress(golden.read_bytes()))
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    events = 0
    with target.open("wb") as file:
        written = file.write(
            b"{\n" + "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items()).encode()
        )
        written += file.write(b'  "traceEvents": [\n')
        for event in copies(trace):
            written += file.write(b",\n" * bool(events) + event)
            events += 1
            if written >= size:
                break
        file.write(b"\n  ]\n}\n")
    return events


def write_ranks(folder: Path, ranks: int, size: int) -> list[Path]:
    """A trace of this size for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    trace = json.loads(gzip.decompress(SMALL_TRACE.read_bytes()))
    golden = folder / "small.json.gz"
    found = []
    for rank in range(ranks):
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        if rank == 0:
            golden.write_bytes(gzip.compress(json.dumps(trace).encode()))
            found.append(folder / "rank0.json")
            write_trace(golden, found[0], size)
            golden.unlink()
            continue
        # Only the head differs, so the first rank's text is written again with another head.
        target = folder / f"rank{rank}.json"
        with found[0].open("rb") as source, target.open("wb") as file:
            head = source.read(1 << 16)
            file.write(head.replace(b'"rank": 0, "world_size"', b'"rank": %d, "world_size"' % rank, 1))
            while block := source.read(1 << 22):
                file.write(block)
        found.append(target)
    return found


# -- checkpoints ----------------------------------------------------------------------------------------------------------

sys.path.append(str(DATA.parent / "shared"))


def llama_405b() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of Llama 3.1 405B."""
    width, inner, words, keys = 16384, 53248, 128256, 1024
    yield "model.embed_tokens.weight", (words, width)
    for layer in range(126):
        stem = f"model.layers.{layer}"
        for name, shape in (("q", (width, width)), ("k", (keys, width)), ("v", (keys, width)), ("o", (width, width))):
            yield f"{stem}.self_attn.{name}_proj.weight", shape
        for name, shape in (("gate", (inner, width)), ("up", (inner, width)), ("down", (width, inner))):
            yield f"{stem}.mlp.{name}_proj.weight", shape
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{stem}.{name}.weight", (width,)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (words, width)


def mixture() -> Iterator[tuple[str, tuple[int, ...]]]:
    """As many tensors as the largest published mixtures have: 61 layers of 256 experts of three weights, each with a scale."""
    for layer in range(61):
        for expert in range(256):
            for name in ("gate", "up", "down"):
                stem = f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight"
                yield stem, (2048, 7168)
                yield f"{stem}_scale_inv", (16, 56)


def write_shards(folder: Path, tensors: Iterator[tuple[str, tuple[int, ...]]], count: int, *, fp8: bool) -> Path:
    from checkpoint_making import write_sharded

    folder.mkdir()
    listed = list(tensors)
    kinds = [("F32" if name.endswith("_inv") else "F8_E4M3" if fp8 else "BF16", shape) for name, shape in listed]
    pieces: list[dict[str, Any]] = [{} for _ in range(count)]
    for index, ((name, _), kind) in enumerate(zip(listed, kinds, strict=True)):
        pieces[index * count // len(listed)][name] = kind
    write_sharded(folder, pieces)
    return folder


def write_vocabulary(path: Path) -> Path:
    """The keys of a Llama 3 GGUF, and 291 tensors of it."""
    from checkpoint_making import write_gguf

    words = 128_256
    keys = {
        "general.architecture": "llama", "tokenizer.ggml.tokens": [f"token{n}" for n in range(words)],
        "tokenizer.ggml.token_type": [1] * words, "tokenizer.ggml.merges": [f"tok {n}" for n in range(280_147)],
    }  # fmt: skip
    tensors = [(f"blk.{n // 9}.{n % 9}.weight", (4096, 4096), 12, 4096 * 4096 // 256 * 144) for n in range(291)]
    return write_gguf(path, keys, tensors)
