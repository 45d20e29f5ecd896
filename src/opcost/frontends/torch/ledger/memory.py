"""Which of the user's tensors lie in the same memory: tied weights, transposed views, flat parameters and views into them."""

from __future__ import annotations

from typing import NamedTuple

import torch


class _Span(NamedTuple):
    """The stretch of a storage that a tensor covers."""

    start: int
    end: int
    dense: bool
    """Every element in between is the tensor's."""
    vid: int


class Memory:
    """Finds the value whose memory a tensor shares."""

    def __init__(self) -> None:
        self._same: dict[tuple[int, int, int], int] = {}
        self._alone: dict[int, tuple[torch.Tensor, int]] = {}
        """The first tensor in each storage; nearly always the only one, so its extent is worked out when there is another."""
        self._spans: dict[int, list[_Span]] = {}

    def place(self, tensor: torch.Tensor, vid: int) -> tuple[int, tuple[int, ...]]:
        """The value in whose memory a new value lies, itself where it has its own, and the values that lie in its."""
        if tensor.layout is not torch.strided:
            return vid, ()
        try:
            key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.numel())
        except (NotImplementedError, RuntimeError):  # there is no plain storage to ask
            return vid, ()
        if (same := self._same.get(key)) is not None:
            return same, ()
        self._same[key] = vid
        if (first := self._alone.setdefault(key[0], (tensor, vid)))[1] == vid:
            return vid, ()
        others = self._spans.setdefault(key[0], [_span(*first)])
        span = _span(tensor, vid)
        for other in others:
            if _covers(other, span):
                self._same[key] = other.vid
                return other.vid, ()
        inside = tuple(other.vid for other in others if _covers(span, other))
        others.append(span)
        return vid, inside


def _span(tensor: torch.Tensor, vid: int) -> _Span:
    start, numel = tensor.storage_offset(), tensor.numel()
    end = start + (
        1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) if numel else 0
    )
    return _Span(start, end, end - start == numel, vid)


def _covers(outer: _Span, inner: _Span) -> bool:
    return outer.dense and outer.start <= inner.start and inner.end <= outer.end
