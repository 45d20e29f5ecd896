"""What the hardware counted beside what we count: operations of tensor cores and FP32 units, and bytes of the memory.

    python benchmarks/hardware_counters.py measure FILE  writes what Nsight Compute (`ncu`) counts on a GPU
    python benchmarks/hardware_counters.py FILE          the table of such a file; needs no GPU

Each operator runs once under the profiler, its caches emptied before. Kernels come in order, and a kernel of its own stands
between two operators, so that each one's are known. Operations of a product are two for each multiplication and addition; a tile
that sizes do not fill is multiplied all the same, and blocks that a causal mask hides are left out: what is then more or less
than we count is the hardware's, and the ratio shows it.
"""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

BETWEEN = "bitwise_not"
"""The kernel that stands between two operators."""
FP32 = {
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 1,
}
"""Instructions of single threads, and what each calculates."""
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
TENSOR = "sm__ops_path_tensor_src_"
"""Each counts the operations on one type of elements; further ones count the same again by instruction."""

Make = Callable[[str], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]


def _product(m: int, n: int, k: int, dtype: torch.dtype) -> Make:
    return lambda device: (torch.mm, (_random((m, k), dtype, device), _random((k, n), dtype, device)))


def _convolution(image: tuple[int, ...], weight: tuple[int, ...], dtype: torch.dtype, **how: int) -> Make:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=weight[-1] // 2, **how)

    return lambda device: (run, tuple(_laid_out(_random(shape, dtype, device)) for shape in (image, weight)))


def _laid_out(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _attention(shape: tuple[int, ...], dtype: torch.dtype, *, causal: bool) -> Make:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return lambda device: (run, tuple(_random(shape, dtype, device) for _ in range(3)))


def _simple(run: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Make:
    return lambda device: (run, tuple(_random(shape, dtype, device) for shape in shapes))


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randn(shape, device=device).to(dtype)


BF16, FP16, SINGLE = torch.bfloat16, torch.float16, torch.float32
IMAGE, FLAT = (32, 64, 56, 56), (8192, 4096)
CASES: dict[str, Make] = {
    "product 4096x4096x4096 bf16": _product(4096, 4096, 4096, BF16),
    "product 4096x4096x4096 fp16": _product(4096, 4096, 4096, FP16),
    "product 2048x2048x2048 fp32": _product(2048, 2048, 2048, SINGLE),
    "product 8192x1024x512 bf16": _product(8192, 1024, 512, BF16),
    "product 1024x8192x2048 bf16": _product(1024, 8192, 2048, BF16),
    "product 1000x1000x1000 bf16": _product(1000, 1000, 1000, BF16),
    "product 4100x4100x4100 bf16": _product(4100, 4100, 4100, BF16),
    "product 197x768x768 bf16": _product(197, 768, 768, BF16),
    "product 1x4096x4096 bf16": _product(1, 4096, 4096, BF16),
    "product 8x4096x4096 bf16": _product(8, 4096, 4096, BF16),
    "conv 3x3 64 to 64 bf16": _convolution(IMAGE, (64, 64, 3, 3), BF16),
    "conv 3x3 256 to 256 bf16": _convolution((32, 256, 14, 14), (256, 256, 3, 3), BF16),
    "conv 1x1 64 to 256 bf16": _convolution(IMAGE, (256, 64, 1, 1), BF16),
    "conv 1x1 512 to 128 fp16": _convolution((32, 512, 28, 28), (128, 512, 1, 1), FP16),
    "conv 7x7/2 3 to 64 bf16": _convolution((32, 3, 224, 224), (64, 3, 7, 7), BF16, stride=2),
    "conv 3x3 depthwise fp32": _convolution((32, 128, 56, 56), (128, 1, 3, 3), SINGLE, groups=128),
    "attention 8x16x1024x64 bf16": _attention((8, 16, 1024, 64), BF16, causal=False),
    "attention 8x16x1024x64 bf16 causal": _attention((8, 16, 1024, 64), BF16, causal=True),
    "attention 4x16x2048x128 bf16": _attention((4, 16, 2048, 128), BF16, causal=False),
    "attention 8x12x512x64 fp32": _attention((8, 12, 512, 64), SINGLE, causal=False),
    "add fp32": _simple(torch.add, FLAT, FLAT),
    "multiply fp32": _simple(torch.mul, FLAT, FLAT),
    "addcmul fp32": _simple(torch.addcmul, FLAT, FLAT, FLAT),
    "relu fp32": _simple(torch.relu, FLAT),
    "gelu bf16": _simple(F.gelu, FLAT, dtype=BF16),
    "softmax fp32": _simple(lambda x: x.softmax(-1), FLAT),
    "layer norm fp32": _simple(lambda x: F.layer_norm(x, (4096,)), FLAT),
    "sum fp32": _simple(lambda x: x.sum(-1), FLAT),
    "copy bf16": _simple(torch.clone, FLAT, dtype=BF16),
    "cat fp32": _simple(lambda a, b: torch.cat((a, b)), FLAT, FLAT),
    "embedding fp32": lambda device: (
        F.embedding,
        (torch.arange(8192, device=device) * 3 % 32000, _random((32000, 1024), SINGLE, device)),
    ),
}


def run() -> None:
    """Every case once, after a kernel that tells where it begins."""
    torch.backends.cudnn.benchmark = True
    between = torch.zeros(1, dtype=torch.uint8, device="cuda")
    ready = []
    with torch.no_grad():
        for make in CASES.values():
            call, given = make("cuda")
            for _ in range(3):
                call(*given)
            ready.append((call, given))
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for call, given in ready:
            torch.bitwise_not(between)
            call(*given)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def measure(path: Path) -> None:
    names = subprocess.run(["ncu", "--query-metrics"], check=True, capture_output=True, text=True).stdout
    tensor = sorted(
        {line.split()[0] for line in names.splitlines() if line.startswith(TENSOR) and "sparsity" not in line}
    )
    metrics = [*(f"{name}.sum" for name in tensor), *FP32, *DRAM]
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"]
    command += ["--metrics", ",".join(metrics), sys.executable, __file__, "run"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if not lines:
        raise SystemExit(f"ncu told nothing: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    cases: list[list[dict[str, str]]] = []
    for kernel in list(csv.DictReader(lines))[1:]:  # the first line below the names has the units
        if BETWEEN in kernel["Kernel Name"]:
            cases.append([])
        else:
            cases[-1].append(kernel)
    rows = {name: _summed(kernels, tensor) for name, kernels in zip(CASES, cases, strict=True)}
    told = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Nsight Compute"
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()]
    path.write_text(f'{{"measured": {json.dumps(told)}, "rows": {{\n' + ",\n".join(lines) + "\n}}\n")


def _summed(kernels: list[dict[str, str]], tensor: list[str]) -> dict[str, Any]:
    def total(metric: str) -> int:
        return sum(round(float(kernel[metric].replace(",", "") or 0)) for kernel in kernels if kernel.get(metric))

    used = {name.removeprefix(TENSOR): total(f"{name}.sum") for name in tensor}
    return {
        "kernels": [kernel["Kernel Name"][:80] for kernel in kernels],
        "tensor": {name: number for name, number in used.items() if number},
        "fp32": sum(each * total(metric) for metric, each in FP32.items()),
        "read": total(DRAM[0]),
        "written": total(DRAM[1]),
    }


def table(path: Path) -> None:
    import opcost

    measured = json.loads(path.read_text())
    print(measured["measured"])
    print(
        f"{'operator':<36}{'counted':>10}{'hardware':>10}{'ratio':>7}  {'units':<24}{'bytes':>9}{'moved':>9}{'ratio':>7}"
    )
    for name, row in measured["rows"].items():
        call, given = CASES[name]("meta")
        cost = opcost.count(call, given).totals
        products = sum(row["tensor"].values())
        operations, counted = (products, 2 * cost.macs) if products else (row["fp32"], cost.flops)
        units = ", ".join(row["tensor"]) or ("fp32" if row["fp32"] else "none")
        least, moved = cost.bytes_read + cost.bytes_written, row["read"] + row["written"]
        print(
            f"{name:<36}{counted / 1e9:>10.4g}{operations / 1e9:>10.4g}{operations / max(1, counted):>7.2f}  {units[:23]:<24}"
            f"{least / 1e6:>9.4g}{moved / 1e6:>9.4g}{moved / max(1, least):>7.2f}"
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run"]:
            run()
        case ["measure", path]:
            measure(Path(path))
        case [path]:
            table(Path(path))
        case _:
            raise SystemExit(__doc__)
