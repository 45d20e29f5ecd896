"""Predicted against measured times of whole models on the processor at hand, from its own calibration.

    opcost calibrate --device cpu -o FILE && python benchmarks/predict_processor.py FILE

None of the models was calibrated on. Both run on as many threads as the calibration had, and the quickest of several runs
counts: what else the machine does only makes runs longer. On a single thread it is the time that the thread was given.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import opcost
from opcost.devices.calibration import DOCUMENT
from opcost.frontends.zoo import declare_torchvision_operators

declare_torchvision_operators()

import timm  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402

IMAGES = {
    "tv/resnet18": 1, "tv/resnet50": 1, "tv/mobilenet_v2": 1, "tv/vgg11": 1, "tv/densenet121": 1, "tv/efficientnet_b0": 1,
    "tv/shufflenet_v2_x1_0": 2, "tv/squeezenet1_1": 4, "tv/regnet_y_400mf": 2, "tv/mnasnet1_0": 4, "tv/resnet34": 2,
    "tv/convnext_tiny": 1, "tv/vit_b_32": 1, "tv/swin_t": 1, "timm/deit_tiny_patch16_224": 2, "timm/mixer_b16_224": 1,
    "timm/resnet26d": 1, "timm/resnext50_32x4d": 1, "timm/poolformer_s12": 1, "timm/ghostnet_100": 2,
}  # fmt: skip
"""Networks for images of 224 by 224, and how many at once."""
TEXTS: dict[str, tuple[Callable[[], Any], tuple[int, int]]] = {
    "hf/distilbert": (lambda: transformers.DistilBertModel(transformers.DistilBertConfig()), (1, 64)),
    "hf/gpt2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()), (1, 64)),
    "hf/bert": (lambda: transformers.BertModel(transformers.BertConfig()), (2, 64)),
}
RUNS = 5


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    if name in TEXTS:
        maker, shape = TEXTS[name]
        return maker().eval(), (torch.zeros(shape, dtype=torch.int64),)
    library, _, model = name.partition("/")
    net = timm.create_model(model) if library == "timm" else torchvision.models.get_model(model)
    return net.eval(), (torch.randn(IMAGES[name], 3, 224, 224),)


def measured(model: Any, inputs: tuple[Any, ...]) -> float:
    """Milliseconds of the quickest run."""
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    model(*inputs)
    taken = []
    for _ in range(RUNS):
        began = now()
        model(*inputs)
        taken.append((now() - began) * 1e3)
    return min(taken)


def main() -> None:
    path = sys.argv[1]
    torch.set_num_threads(int(DOCUMENT.load(path).meta["threads"]))
    misses = []
    inside = 0
    with torch.no_grad():
        for name in (*IMAGES, *TEXTS):
            model, inputs = made(name)
            truth = measured(model, inputs)
            found = opcost.predict(model, inputs, device="cpu", calibration=path)
            misses.append(found.latency_ns / 1e6 / truth - 1)
            inside += found.band_ns[0] <= truth * 1e6 <= found.band_ns[1]
            print(f"{name:30} {truth:9.2f} ms {found.latency_ns / 1e6:9.2f} ms {misses[-1]:+7.1%}", flush=True)
    sizes = [abs(miss) for miss in misses]
    print(f"{len(sizes)} models: median {statistics.median(sizes):.1%}, mean {statistics.mean(sizes):.1%}, ", end="")
    print(f"bias {statistics.mean(misses):+.1%}, inside the band {inside / len(sizes):.0%}")


if __name__ == "__main__":
    main()
