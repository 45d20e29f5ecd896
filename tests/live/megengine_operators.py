"""Runs with MegEngine's own Python: dumps functions and layers with odd settings, and writes down what MegEngine says of them.

    python megengine_operators.py FOLDER

FOLDER gets `NAME.v2.mge` and `NAME.v1.mge`; `facts.json` says for each net its multiply-adds by hand and the shape of its
result, and for each dump the type, shape and element type of every operator's result after MegEngine has read it again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.jit import trace
from megengine.utils.network import Network

RNG = np.random.RandomState(0)
B, C, D, T, H = 2, 4, 6, 5, 8
"""Batch, channels, features, steps, hidden units."""
IMAGE = (B, C, 9, 11)


class Case(NamedTuple):
    """A function of tensors, the inputs to trace it with, and its multiply-adds by the shape of its result."""

    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    macs: Callable[[tuple[int, ...]], int] = lambda shape: 0


def data(*shape: int) -> Any:
    return RNG.rand(*shape).astype("float32")


def layer(module: M.Module, *inputs: Any, macs: Callable[[tuple[int, ...]], int] = lambda shape: 0) -> Case:
    module.eval()
    return Case(module, inputs, macs)


def first(module: M.Module, *inputs: Any, macs: int) -> Case:
    """A recurrent layer, of which only the sequence is handed on: dumps return tensors alone."""
    module.eval()
    return Case(lambda x: module(x)[0], inputs, lambda shape: macs)


class Deformable(M.Module):
    """Offsets and weights of the samples come from convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.mask = M.Conv2d(C, 18, 3, 1, 1), M.Conv2d(C, 9, 3, 1, 1)
        self.conv = M.DeformableConv2d(C, D, 3, 1, 1)

    def forward(self, x: Any) -> Any:
        return self.conv(x, self.offset(x), F.sigmoid(self.mask(x)))


class Cells(M.Module):
    """Two kinds of cells, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.plain = M.LSTMCell(D, H), M.RNNCell(H, C, nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        h = c = F.zeros((x.shape[1], H))
        y = F.zeros((x.shape[1], C))
        for step in range(T):
            h, c = self.lstm(x[step], (h, c))
            y = self.plain(h, y)
        return y


class Nested(M.Module):
    """Sequences in sequences, a layer that is called twice, layers in a list and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.body = M.Sequential(M.Linear(D, D), M.Sequential(M.ReLU(), M.Linear(D, D, bias=False)))
        self.twice = M.Linear(D, D)
        self.several = [M.Linear(D, D) for _ in range(2)]
        self.named = {"last": M.Linear(D, 3)}

    def forward(self, x: Any) -> Any:
        x = self.twice(self.body(self.twice(x)))
        for part in self.several:
            x = part(x)
        return self.named["last"](x)


def written(x: Any) -> Any:
    """A tensor of which parts are set and added to."""
    x[1:3, ::2] = 0.5
    x[0] += 1
    return x * 2


def convolutions() -> dict[str, Case]:
    gates = 4
    return {
        "conv_uneven": layer(
            M.Conv2d(C, D, (3, 5), (2, 1), (1, 2), dilation=(1, 2)), data(*IMAGE), macs=lambda y: prod(y) * C * 15
        ),
        "conv_replicate": layer(
            M.Conv2d(C, D, 3, 1, 2, padding_mode="replicate"), data(*IMAGE), macs=lambda y: prod(y) * C * 9
        ),
        "conv_reflect": layer(
            M.Conv2d(C, D, 3, 1, 1, padding_mode="reflect"), data(*IMAGE), macs=lambda y: prod(y) * C * 9
        ),
        "conv_transposed_uneven": layer(
            M.ConvTranspose2d(C, D, (2, 3), (2, 3), (0, 1)), data(*IMAGE), macs=lambda y: prod(IMAGE) * D * 6
        ),
        "conv_transposed_grouped": layer(
            M.ConvTranspose2d(C, C, 3, 2, 1, groups=2, bias=False),
            data(*IMAGE),
            macs=lambda y: prod(IMAGE) * C // 2 * 9,
        ),
        "conv1d": layer(M.Conv1d(C, D, 3, 2, 2, dilation=2), data(B, C, 21), macs=lambda y: prod(y) * C * 3),
        "conv3d": layer(
            M.Conv3d(C, D, (1, 3, 3), (1, 2, 2), (0, 1, 1), groups=2),
            data(1, C, 4, 9, 9),
            macs=lambda y: prod(y) * C // 2 * 9,
        ),
        "conv3d_transposed": layer(
            M.ConvTranspose3d(2, 3, 3, 2, 1), data(1, 2, 4, 4, 4), macs=lambda y: 2 * 64 * 3 * 27
        ),
        "local": layer(
            M.LocalConv2d(C, D, 8, 8, 3, padding=1, groups=2), data(B, C, 8, 8), macs=lambda y: prod(y) * C // 2 * 9
        ),
        "deformable": layer(Deformable(), data(B, C, 7, 7), macs=lambda y: B * 49 * (18 + 9 + D) * C * 9),
        "lstm": first(M.LSTM(D, H, num_layers=2), data(T, B, D), macs=T * B * gates * H * (D + H + 2 * H)),
        "lstm_both_ways": first(
            M.LSTM(D, H, num_layers=2, bidirectional=True), data(T, B, D), macs=T * B * 2 * gates * H * (D + H + 3 * H)
        ),
        "lstm_batch_first": first(
            M.LSTM(D, H, batch_first=True, bias=False), data(B, T, D), macs=T * B * gates * H * (D + H)
        ),
        "lstm_projected": first(M.LSTM(D, H, proj_size=C), data(T, B, D), macs=T * B * (gates * H * (D + C) + H * C)),
        "rnn": first(
            M.RNN(D, H, num_layers=2, nonlinearity="relu", bias=False), data(T, B, D), macs=T * B * H * (D + H + 2 * H)
        ),
        "cells": layer(Cells(), data(T, B, D), macs=lambda y: T * B * (gates * H * (D + H) + C * (H + C))),
        "nested": layer(Nested(), data(C, D), macs=lambda y: C * (6 * D * D + 3 * D)),
    }


def products() -> dict[str, Case]:
    weight = mge.Parameter(data(D, C))
    return {
        "product_spread": Case(F.matmul, (data(T, D), data(2, 3, D, C)), lambda y: prod(y) * D),
        "product_first_transposed": Case(
            lambda a, b: F.matmul(a, b, transpose_a=True), (data(B, D, T), data(B, D, C)), lambda y: prod(y) * D
        ),
        "product_both_transposed": Case(
            lambda a, b: F.matmul(a, b, transpose_a=True, transpose_b=True),
            (data(D, T), data(C, D)),
            lambda y: prod(y) * D,
        ),
        "vector_and_matrices": Case(F.matmul, (data(D), data(3, D, C)), lambda y: prod(y) * D),
        "matrices_and_vector": Case(F.matmul, (data(B, T, D), data(D)), lambda y: prod(y) * D),
        "vectors": Case(F.matmul, (data(D), data(D)), lambda y: D),
        "four_axes_and_weight": Case(lambda a: F.matmul(a, weight), (data(B, 3, T, D),), lambda y: prod(y) * D),
    }


def others() -> dict[str, Case]:
    square = data(C, D)
    rows, columns = np.array([0, 3, 1], "int32"), np.array([[0, 1], [2, 3], [4, 5], [0, 2]], "int32")
    boxes = np.array([[0, 1, 1, 5, 5], [1, 0, 0, 8, 8], [0, 2, 2, 4, 4]], "float32")
    return {
        "layer_norm": layer(M.LayerNorm((9, 11)), data(*IMAGE)),
        "batch_norm": layer(M.BatchNorm2d(C, affine=False), data(*IMAGE)),
        "batch_norm_1d": layer(M.BatchNorm1d(D), data(C, D)),
        "average": layer(M.AvgPool2d((3, 2), (1, 2), (1, 0), mode="average"), data(*IMAGE)),
        "adaptive": layer(M.AdaptiveMaxPool2d((3, 5)), data(*IMAGE)),
        "resize": Case(lambda x: F.vision.interpolate(x, scale_factor=1.5, align_corners=False), (data(*IMAGE),)),
        "resize_nearest": Case(lambda x: F.vision.interpolate(x, size=[5, 7], mode="nearest"), (data(*IMAGE),)),
        "resize_computed": Case(
            lambda x: F.vision.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 3)), (data(*IMAGE),)
        ),
        "pad": Case(lambda x: F.nn.pad(x, ((0, 0), (1, 2), (0, 1), (3, 0)), mode="reflect"), (data(*IMAGE),)),
        "windows": Case(
            lambda x: F.nn.sliding_window(x, (3, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2)), (data(*IMAGE),)
        ),
        "cross_entropy": Case(F.nn.cross_entropy, (square, np.array([1, 2, 3, 0], "int32"))),
        "one_hot": Case(lambda y: F.one_hot(y, 7) * 2, (rows,)),
        "statistics": Case(
            lambda x: F.std(x, 1, keepdims=True) + F.var(x, (1, 2), keepdims=True) + F.norm(x, axis=2, keepdims=True),
            (data(C, 7, 3),),
        ),
        "best": Case(lambda x: F.topk(F.reshape(x, (-1,)), 5)[1], (square,)),
        "running_sum": Case(lambda x: F.cumsum(x, 1) + F.roll(x, (1, -2), (0, 1)), (square,)),
        "indexed": Case(lambda x, i: x[i, 1:3, ..., ::2][:, :, None], (data(C, D, 3, H), rows)),
        "written": Case(written, (data(T, D),)),
        "reshaped": Case(
            lambda x: F.reshape(F.transpose(x, (0, 2, 3, 1)), (x.shape[0], -1, x.shape[1] * 3)).mean(1), (data(*IMAGE),)
        ),
        "repeated": Case(lambda x: F.tile(F.repeat(x, 3, axis=1), (2, 1, 2)), (data(B, C, D),)),
        "gathered": Case(lambda x, i: F.gather(x, 1, i), (square, columns)),
        "scattered": Case(lambda x, i, s: F.scatter(x, 1, i, s), (square, columns, data(C, 2))),
        "activations": Case(
            lambda x: (
                F.silu(x) + F.gelu(x) + F.hswish(x) + F.relu6(x) + F.softplus(x) + F.logsigmoid(x) + F.clip(x, 0.1, 1)
            ),
            (square,),
        ),
        "powers": Case(lambda x: x**2 + x**0.5 + x**3.3 + F.floor_div(x, 0.3) + F.mod(x, 0.3) + F.round(x), (square,)),
        "chosen": Case(lambda x: F.where(F.logical_and(x > 0.2, F.logical_not(x < 0.1)), x, -x), (square,)),
        "whole_numbers": Case(lambda x: (x // 3 + (x % 5) << 2) + (x * 2 >> 1), (columns,)),
        "regions": Case(lambda x, r: F.vision.roi_align(x, r, (3, 5), sample_points=(3, 2)), (data(*IMAGE), boxes)),
        "region_maxima": Case(lambda x, r: F.vision.roi_pooling(x, r, (3, 5)), (data(*IMAGE), boxes)),
        "warped": Case(
            lambda x, m: F.vision.warp_affine(x, m, (6, 5), format="NHWC"), (data(B, 9, 9, 3), data(B, 2, 3))
        ),
        "remapped": Case(F.vision.remap, (data(*IMAGE), data(B, 5, 4, 2))),
        "local_response": Case(lambda x: F.nn.local_response_norm(x, 3, 1.0, 1e-4, 0.75), (data(*IMAGE),)),
        "singular": Case(lambda x: F.svd(x)[1], (square,)),
        "inverse": Case(F.matinv, (data(B, C, C),)),
        "one_number": Case(lambda x: F.exp(x.mean()) * x.max(), (square,)),
    }


def results(path: Path) -> dict[str, int]:
    """How often each type of operators gives each shape and element type, after MegEngine has read the dump."""
    found: Counter[str] = Counter()
    for operator in Network.load(str(path)).all_oprs:
        var = operator.outputs[-1] if operator.type.startswith("BatchNorm") else operator.outputs[0]
        found[f"{operator.type} {'x'.join(map(str, var.shape))} {np.dtype(var.dtype).name}"] += 1
    return dict(found)


def main(folder: Path) -> None:
    """Trace, dump, read again."""
    mge.random.seed(0)
    facts = {}
    for name, case in {**convolutions(), **products(), **others()}.items():
        recorded = trace(case.run, symbolic=True, capture_as_const=True)
        shape = recorded(*map(mge.tensor, case.inputs)).numpy().shape
        dumps = {}
        for form, options in {"v2": {}, "v1": {"dump_format": "FBS"}}.items():
            path = folder / f"{name}.{form}.mge"
            recorded.dump(str(path), arg_names=[f"x{place}" for place in range(len(case.inputs))], **options)
            dumps[form] = results(path)
        facts[name] = {"macs": case.macs(shape), "output": shape, "dumps": dumps}
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
