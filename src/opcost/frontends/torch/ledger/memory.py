"""Which of the user's tensors lie in the same memory: tied weights, transposed views, flat parameters and views into them."""

from __future__ import annotations

from typing import NamedTuple

import torch

_untyped_storage = torch.Tensor.untyped_storage  # itself, not what replaces it during a count


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
        self._first: dict[int, tuple[torch.Tensor, int]] = {}
        """The first tensor in each storage; nearly always the only one, so its extent is worked out when there is another."""
        self._same: dict[tuple[int, int, int], int] = {}
        self._spans: dict[int, list[_Span]] = {}

    def place(self, tensor: torch.Tensor, vid: int) -> tuple[int, tuple[int, ...]]:
        """The value in whose memory a new value lies, itself where it has its own, and the values that lie in its."""
        if tensor.layout is not torch.strided:
            return vid, ()
        try:
            storage = _untyped_storage(tensor)._cdata
        except (NotImplementedError, RuntimeError):  # there is no plain storage to ask
            return vid, ()
        first = self._first.setdefault(storage, (tensor, vid))
        if first[1] == vid:
            return vid, ()
        others = self._spans.get(storage)
        if others is None:
            others = self._spans[storage] = [_span(*first)]
            self._same[_key(storage, first[0])] = first[1]
        key = _key(storage, tensor)
        if (same := self._same.get(key)) is not None:
            return same, ()
        span = _span(tensor, vid)
        for other in others:
            if _covers(other, span):
                self._same[key] = other.vid
                return other.vid, ()
        self._same[key] = vid
        inside = tuple(other.vid for other in others if _covers(span, other))
        others.append(span)
        return vid, inside


def _key(storage: int, tensor: torch.Tensor) -> tuple[int, int, int]:
    """What tensors have in common that are the same elements, however they are laid out."""
    return storage, tensor.storage_offset(), tensor.numel()


def _span(tensor: torch.Tensor, vid: int) -> _Span:
    start, numel = tensor.storage_offset(), tensor.numel()
    end = start + (
        1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) if numel else 0
    )
    return _Span(start, end, end - start == numel, vid)


def _covers(outer: _Span, inner: _Span) -> bool:
    return outer.dense and outer.start <= inner.start and inner.end <= outer.end
