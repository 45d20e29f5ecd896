"""ResNet-18 (He et al., 2015) in plain PyTorch.

opcost count examples/resnet18.py:ResNet18 --input 1x3x224x224
"""

from __future__ import annotations

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """A stem, four stages of two blocks, a mean over space, a classifier."""

    def __init__(self, classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stage1 = self._stage(width, width, stride=1)
        self.stage2 = self._stage(width, 2 * width, stride=2)
        self.stage3 = self._stage(2 * width, 4 * width, stride=2)
        self.stage4 = self._stage(4 * width, 8 * width, stride=2)
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def _stage(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return self.fc(x.mean(dim=(2, 3)))
