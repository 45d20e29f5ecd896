"""A case made ready to run on a device: its tensors, some from memory and some from the cache, and the call."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from opcost.recorders.calibration.plan import Case

Calls = list[Callable[[], Any]]

CACHE = 128 * 2**20
"""No cache of a device is this large: tensors that must come from memory are taken in turn from this many bytes."""


def calls_of(case: Case, device: torch.device, times: int) -> Calls:
    """The call of a case this many times, with tensors of its own each time where they must not come from a cache."""
    function, prepare = _function(case, device)
    warm: dict[int, torch.Tensor] = {}

    def made(tree: Any, place: int = 0) -> Any:
        if isinstance(tree, dict) and "shape" in tree:
            if tree.get("cold"):
                return _tensor(tree, device)
            if id(tree) not in warm:
                warm[id(tree)] = _tensor(tree, device)
            return warm[id(tree)]
        if isinstance(tree, dict):
            return _word(tree, device)
        return [made(each) for each in tree] if isinstance(tree, (list, tuple)) else tree

    cold = sum(_nbytes(tensor) for tensor in tensors(case) if tensor.get("cold"))
    copies = min(times, -(-CACHE // cold)) if cold else 1
    sets = []
    for _ in range(copies):
        given = [made(each) for each in case.args], {name: made(each) for name, each in case.kwargs.items()}
        sets.append(given if prepare is None else prepare(*given))

    def call(number: int) -> Callable[[], Any]:
        args, kwargs = sets[number % copies]
        return lambda: function(*args, **kwargs)

    return [call(number) for number in range(times)]


def tensors(case: Case) -> list[dict[str, Any]]:
    """The tensors among the arguments of a case."""
    found: list[dict[str, Any]] = []

    def look(tree: Any) -> None:
        if isinstance(tree, dict) and "shape" in tree:
            found.append(tree)
        elif isinstance(tree, (list, tuple, dict)):
            for each in tree.values() if isinstance(tree, dict) else tree:
                look(each)

    look([case.args, case.kwargs])
    return found


def _nbytes(tensor: dict[str, Any]) -> int:
    itemsize: int = getattr(torch, tensor["dtype"]).itemsize
    return int(prod(tensor["shape"])) * itemsize


def _tensor(made: dict[str, Any], device: torch.device) -> torch.Tensor:
    """A tensor of numbers around zero; integers are valid indices of what they index, or where equal parts of it end."""
    shape, dtype = tuple(made["shape"]), getattr(torch, made["dtype"])
    stride = made.get("stride")
    extent = shape if stride is None else (1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)),)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    if "ends" in made:
        return (torch.arange(1, shape[0] + 1, device=device) * made["ends"] // shape[0]).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        memory = torch.randn(extent, device=device, dtype=torch.bfloat16 if dtype.itemsize == 1 else dtype).to(dtype)
    elif dtype in (torch.uint64, torch.uint32, torch.uint16):
        memory = torch.zeros(extent, device=device, dtype=dtype)
    else:
        memory = torch.randint(0, made.get("below") or 2, extent, device=device).to(dtype)
    return memory if stride is None else memory.as_strided(shape, stride)


def _word(tree: dict[str, Any], device: torch.device) -> Any:
    """An argument that JSON has no word for."""
    if "device" in tree:
        return device
    return float(tree["number"]) if "number" in tree else getattr(torch, tree["as"])


def _function(case: Case, device: torch.device) -> tuple[Callable[..., Any], Any]:
    """What is called for an operator, and what makes of its arguments, untimed, those of the call."""
    if case.raw == "aten::native_batch_norm":  # chooses the kernel, as F.batch_norm does
        choose = torch.ops.aten._batch_norm_impl_index.default  # noqa: SLF001 - an operator, and not private
        return choose, lambda args, kwargs: ((*args, torch.backends.cudnn.enabled), kwargs)
    if case.raw == "aten::native_batch_norm_backward":
        return _backward, _forward_of_batch_norm
    if case.kind == "attention":  # runs by the kernel that the device chooses, and a count names the one it saw
        gradient = bool(case.attrs.get("grad"))
        masked = len(case.ins) > (4 if gradient else 3)
        given = partial(_given_to_attention, masked=masked, causal=bool(case.attrs.get("causal")))
        if gradient:
            return _backward, lambda args, kwargs: _forward_of_attention(*given(args[1:], kwargs), gradient=args[0])
        return F.scaled_dot_product_attention, given
    found: Any = torch.ops
    for part in case.call.split("."):
        found = getattr(found, part)
    return found, None


def _forward_of_batch_norm(args: Any, _: Any) -> Any:
    """The forward pass, whose results only its own backward pass can read."""
    gradient, x, weight, mean, variance, _, _, training, eps, _ = args
    given = [each.detach().requires_grad_() for each in (x, weight) if each is not None]
    bias = None if weight is None else torch.zeros_like(weight).requires_grad_()
    own = None if weight is None else given[1]
    with torch.enable_grad():
        out = F.batch_norm(
            given[0], None if training else mean, None if training else variance, own, bias, training, 0.1, eps
        )
    return (out, [*given, *([] if bias is None else [bias])], gradient), {}


def _given_to_attention(args: Any, kwargs: Any, *, masked: bool, causal: bool) -> Any:
    """Query, key, value and mask; the other arguments are those of one kernel."""
    query, key, value, *others = args
    mask = kwargs.get("attn_mask", others[0] if others else None) if masked else None
    shared = query.dim() == 4 and query.shape[1] != key.shape[1]
    return (query, key, value), {"attn_mask": mask, "is_causal": causal, "enable_gqa": shared}


def _forward_of_attention(args: Any, kwargs: Any, *, gradient: torch.Tensor) -> Any:
    """The forward pass; a mask with numbers for each head is learned, and gets a gradient too."""
    sources = [each.detach().requires_grad_() for each in args]
    mask = kwargs["attn_mask"]
    if mask is not None and mask.is_floating_point() and mask.dim() == args[0].dim() and mask.shape[-3] > 1:
        kwargs["attn_mask"] = mask.detach().requires_grad_()
    with torch.enable_grad():
        out = F.scaled_dot_product_attention(*sources, **kwargs)
    learned = [mask for mask in [kwargs["attn_mask"]] if mask is not None and mask.requires_grad]
    return (out, [*sources, *learned], gradient), {}


def _backward(out: torch.Tensor, sources: Any, gradient: torch.Tensor) -> Any:
    return torch.autograd.grad(out, sources, gradient, retain_graph=True)
