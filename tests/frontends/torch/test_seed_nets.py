from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opcost

SIDE = 512
IMAGE = (1, 1, SIDE, SIDE)
CONV_PARAMS = 3 * 3
CONV_MACS = 3 * 3 * SIDE * SIDE


def conv() -> nn.Conv2d:
    return nn.Conv2d(in_channels=1, out_channels=1, kernel_size=3, stride=1, padding=1, bias=False)


class TwoConvs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv()
        self.conv2 = conv()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x))


class SharedConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv1(self.conv1(x))


class UnusedConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv()
        self.conv2 = conv()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv1(x)


def test_two_convolutions_cost_twice_one(count: Any) -> None:
    report = count(TwoConvs(), torch.empty(IMAGE))
    assert report.totals.params == report.totals.trainable_params == 2 * CONV_PARAMS
    assert report.totals.macs == 2 * CONV_MACS
    assert report.totals.flops == 2 * 2 * CONV_MACS
    assert report.totals.activations == 2 * SIDE * SIDE
    assert report.totals.unused_params == 0
    assert report.shared == ()
    assert [report.module(path).total.macs for path in ("conv1", "conv2")] == [CONV_MACS, CONV_MACS]


@pytest.mark.parametrize("shape", [IMAGE, IMAGE[1:]], ids=["batch", "single"])
def test_a_batch_of_one_costs_as_much_as_a_single_image(shape: tuple[int, ...], count: Any) -> None:
    assert count(TwoConvs(), torch.empty(shape)).totals.macs == 2 * CONV_MACS


def test_a_shared_convolution_has_its_parameters_once_and_its_compute_per_call(count: Any) -> None:
    report = count(SharedConv(), torch.empty(IMAGE))
    assert report.totals.params == CONV_PARAMS
    assert report.totals.macs == 2 * CONV_MACS
    assert report.module("conv1").calls == 2
    assert report.module("conv1").total.macs == 2 * CONV_MACS
    assert report.totals.unused_params == 0


def test_an_unused_layer_is_counted_and_named(count: Any) -> None:
    report = count(UnusedConv(), torch.empty(IMAGE))
    assert report.totals.params == 2 * CONV_PARAMS
    assert report.totals.unused_params == CONV_PARAMS
    assert [parameter.name for parameter in report.unused] == ["conv2.weight"]
    assert report.totals.macs == CONV_MACS
    assert report.module("conv2").calls == 0
    assert report.module("conv2").total.macs == 0


class InnerNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc1(self.fc2(x))


class TestNet(nn.Module):
    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.fc2 = nn.Linear(10, 10)
        self.inner = InnerNet()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc1(self.fc2(self.inner(x)))


def test_nested_modules_are_rolled_up() -> None:
    report = opcost.count(TestNet(), shapes=(1, 10))
    layer_params, layer_macs = 10 * 10 + 10, 10 * 10
    found = {m.path: (m.total.params, m.total.macs, m.total.activations) for m in report.modules}
    leaf = (layer_params, layer_macs, 10)
    assert found == {
        "": (4 * layer_params, 4 * layer_macs, 40),
        "fc1": leaf,
        "fc2": leaf,
        "inner": (2 * layer_params, 2 * layer_macs, 20),
        "inner.fc1": leaf,
        "inner.fc2": leaf,
    }


STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, blocks and stride of the four stages of a ResNet-50."""
EXPANSION = 4
CLASSES = 1000


class Bottleneck(nn.Module):
    def __init__(self, incoming: int, width: int, stride: int) -> None:
        super().__init__()
        outgoing = width * EXPANSION
        self.conv1 = nn.Conv2d(incoming, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outgoing, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outgoing)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or incoming != outgoing:
            shortcut = nn.Conv2d(incoming, outgoing, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outgoing))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        incoming = 64
        for number, (width, blocks, stride) in enumerate(STAGES, start=1):
            stage = nn.Sequential()
            for index in range(blocks):
                stage.append(Bottleneck(incoming, width, stride if index == 0 else 1))
                incoming = width * EXPANSION
            setattr(self, f"layer{number}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(incoming, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class MMResNet50(nn.Module):
    """The model interface of OpenMMLab: one forward for tensors, losses and predictions."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = ResNet50()

    def forward(self, imgs: Tensor, labels: Tensor | None = None, mode: str = "tensor") -> Any:
        x = self.resnet(imgs)
        if mode == "loss":
            return {"loss": F.cross_entropy(x, labels)}
        if mode == "predict":
            return x, labels
        return x


def resnet50_params_and_macs(side: int) -> tuple[int, int]:
    """From the table of stages: convolutions and their batch norms (weight and bias), then the classifier."""
    params = macs = 0

    def layer(incoming: int, outgoing: int, kernel: int, positions: int) -> None:
        nonlocal params, macs
        weights = incoming * outgoing * kernel * kernel
        params += weights + 2 * outgoing
        macs += weights * positions

    side //= 2
    layer(3, 64, 7, side**2)
    side //= 2
    incoming = 64
    for width, blocks, stride in STAGES:
        outgoing = width * EXPANSION
        for index in range(blocks):
            before, side = side, side // (stride if index == 0 else 1)
            layer(incoming, width, 1, before**2)
            layer(width, width, 3, side**2)
            layer(width, outgoing, 1, side**2)
            if index == 0:
                layer(incoming, outgoing, 1, side**2)
            incoming = outgoing
    return params + incoming * CLASSES + CLASSES, macs + incoming * CLASSES


@pytest.fixture(scope="module")
def mmresnet() -> MMResNet50:
    with torch.device("meta"):  # no weight is needed to count
        return MMResNet50()


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_wrapped_resnet_has_its_published_size(mode: str, mmresnet: MMResNet50) -> None:
    report = opcost.count(mmresnet, shapes=(1, 3, 224, 224), mode=mode)
    assert report.coverage.complete
    assert (report.totals.params, report.totals.macs) == resnet50_params_and_macs(224)
    assert (report.totals.params, report.totals.macs) == (25_557_032, 4_089_184_256)
    assert report.module("resnet").total.macs == report.totals.macs
    assert report.module("resnet.layer1.0.relu").calls == 3


def test_the_modes_of_one_forward_differ_by_the_loss_alone(mmresnet: MMResNet50) -> None:
    batch = 2
    plain = opcost.count(mmresnet, shapes={"imgs": (batch, 3, 64, 64)})
    predicted = opcost.count(mmresnet, shapes={"imgs": (batch, 3, 64, 64)}, kwargs={"mode": "predict"})
    labels = torch.zeros(batch, dtype=torch.int64)
    loss = opcost.count(mmresnet, shapes={"imgs": (batch, 3, 64, 64)}, kwargs={"labels": labels, "mode": "loss"})
    assert predicted.totals == plain.totals
    assert loss.coverage.complete
    assert loss.totals.macs == plain.totals.macs == batch * resnet50_params_and_macs(64)[1]
    # log_softmax has 5 FLOPs for each class; the loss looks one class up and adds for each image: negate, weigh, add.
    assert loss.totals.flops - plain.totals.flops == batch * CLASSES * 5 + batch * 3
    assert [spec.shape for spec in loss.outputs] == [()]
