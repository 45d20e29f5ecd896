"""A full-width ResNet-18 as a MegEngine dump of 45 MB, read and counted: CPU seconds beyond start-up, and memory.

    python benchmarks/megengine_read.py [--runs 5] [--keep FILE.mge]

The dump is written here, without MegEngine, with the `flatbuffers` package: the operators, names and shapes that MegEngine
1.13.0 writes for this net with `optimize_for_inference=False`, and zeros for weights. Each run is a process of its own, in
which a small dump is counted first: imports and tables are start-up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from struct import pack
from typing import Any

import flatbuffers

SMALL = Path(__file__).parent.parent / "tests" / "data" / "megengine" / "mge" / "mlp.v2.mge"
VERSION = 101300
CONVOLUTION, POOLING, BATCH_NORM, ELEMWISE, MATRIX_MUL, OPTIONAL_AXIS = 3, 9, 11, 17, 20, 54
"""Tags of the tables that hold an operator's settings."""
RELU, ADD = 0, 16
INT32 = 4
NO_DEFAULT = 2**32 - 1
AVERAGE, INFERENCE, PER_CHANNEL = 1, 1, 2

MEASURED = """
import resource, sys, time
import opcost
opcost.count(sys.argv[1])
start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = opcost.count(sys.argv[2])
spent = time.process_time() - start
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(spent, grown, report.totals.params, report.totals.macs)
"""

Shape = tuple[int, ...]
Put = Callable[[flatbuffers.Builder, int], None]


class Dump:
    """Operators one after the other, each of which gets the number of the variable that it makes."""

    def __init__(self) -> None:
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
        """Write an operator with as many results as there are shapes; the last of them is given back."""
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
        held = {} if data is None else {6: _offset(self._builder.CreateByteVector(data))}
        return self._table({**self._named(name, shape), 3: _offset(self._table({0: _byte(dtype)})), **held})

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


def _offset(place: int) -> Put:
    return lambda builder, slot: builder.PrependUOffsetTRelativeSlot(slot, place, 0)


def _number(number: int) -> Put:
    return lambda builder, slot: builder.PrependUint32Slot(slot, number, NO_DEFAULT)


def _byte(number: int) -> Put:
    return lambda builder, slot: builder.PrependUint8Slot(slot, number, 0)


class ResNet18:
    """The net, layer by layer."""

    def __init__(self, batch: int = 1, size: int = 224) -> None:
        self.dump = dump = Dump()
        x = dump.add("Host2DeviceCopy", "data", (), (batch, 3, size, size))
        x = self.relu("relu", self.norm("bn1", self.conv("conv1", x, 64, 7, 2)))
        x = self.pool("maxpool", x, mode=0, window=3, stride=2, pad=1)
        for level in range(4):
            for place in range(2):
                x = self.block(f"layer{level + 1}.{place}", x, 64 << level, 2 if level and not place else 1)
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
        """In use: the statistics are stored, and what training would need is empty."""
        shape = self.dump.shape(x)
        per_channel = (1, shape[1], 1, 1)
        held = [
            self.weight(f"{name}.{part}", per_channel) for part in ("weight", "bias", "running_mean", "running_var")
        ]
        settings = (BATCH_NORM, (PER_CHANNEL, INFERENCE))
        shapes = (per_channel, per_channel, (0,), shape)
        return self.dump.add("BatchNormV1", f"{name}.BatchNorm", (x, *held), *shapes, settings=settings)

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


def measure(path: Path) -> dict[str, Any]:
    """One count in a process of its own."""
    command = [sys.executable, "-c", MEASURED, str(SMALL), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, kibibytes, params, macs = done.stdout.split()
    return {"seconds": float(seconds), "kibibytes": int(kibibytes), "params": int(params), "macs": int(macs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="leave the dump here")
    options = parser.parse_args()
    net = ResNet18()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "resnet18.mge"
        net.dump.write(path, net.result)
        runs = [measure(path) for _ in range(options.runs)]
        seconds = sorted(run["seconds"] for run in runs)
        print(f"file           {path.stat().st_size / 1e6:.1f} MB")
        print(f"params, MACs   {runs[0]['params']:,}, {runs[0]['macs']:,}")
        print(
            f"CPU seconds    {seconds[len(seconds) // 2]:.3f} (median of {len(seconds)}; {seconds[0]:.3f} to {seconds[-1]:.3f})"
        )
        print(f"memory         {max(run['kibibytes'] for run in runs) / 1024:.1f} MiB more than after the small dump")


if __name__ == "__main__":
    main()
