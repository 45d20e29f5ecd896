"""A U-Net (Ronneberger et al. 2015) with padding, and its ONNX file: `python examples/unet.py unet.onnx`."""

import itertools
import sys

import torch
from torch import Tensor, nn


class Block(nn.Sequential):
    """Two convolutions, each with a ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, with a skip at each level."""

    def __init__(self, classes: int = 2, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        pairs = list(itertools.pairwise(widths))
        self.enter = Block(1, width)
        self.down = nn.ModuleList(Block(*pair) for pair in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, slim, 2, stride=2) for slim, wide in reversed(pairs))
        self.join = nn.ModuleList(Block(wide, slim) for slim, wide in reversed(pairs))
        self.leave = nn.Conv2d(width, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        skips = [self.enter(image)]
        for block in self.down:
            skips.append(block(nn.functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], dim=1))
        return self.leave(x)


if __name__ == "__main__":
    model = UNet(width=16).eval()
    torch.onnx.export(
        model, (torch.zeros(1, 1, 256, 256),), sys.argv[1], dynamo=False, input_names=["image"], output_names=["mask"]
    )
