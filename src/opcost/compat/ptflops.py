"""ptflops: parameters and multiply-adds of a model, and the model's repr with them.

    from opcost.compat.ptflops import get_model_complexity_info

Its numbers are multiply-adds, and one more for each element of a bias, norm, activation, pooling input or sum; the differences
are listed in docs/compat.md.
"""

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from enum import Enum
from functools import partial
from typing import Any, TextIO

import torch
from torch import nn

from opcost.compat import add_submodules
from opcost.compat._layers import meta_tensors
from opcost.compat._modules import Names, repr_with, with_below
from opcost.compat._operators import POOLINGS, RESIZINGS, ElementCosts, OperatorCall, trace
from opcost.core.report import Row
from opcost.errors import InputError, StateError
from opcost.rules.contractions import BIASES, CELLS

__all__ = ["FLOPS_BACKEND", "flops_to_string", "get_model_complexity_info", "params_to_string"]
add_submodules(__name__, "flops_counter")

Hook = Callable[..., Any]
WHOLE = "Global"


class FLOPS_BACKEND(Enum):
    """What is listed: modules (`pytorch`), or operators of the dispatcher (`aten`), which counts only contractions and biases."""

    PYTORCH = "pytorch"
    ATEN = "aten"


def get_model_complexity_info(
    model: nn.Module, input_res: tuple[int, ...], print_per_layer_stat: bool = True, as_strings: bool = True,
    input_constructor: Callable[[tuple[int, ...]], Any] | None = None, ost: TextIO | None = None,
    verbose: bool = False, ignore_modules: Collection[Any] = (),
    custom_modules_hooks: Mapping[Any, Hook] | None = None, backend: str | FLOPS_BACKEND = FLOPS_BACKEND.PYTORCH,
    flops_units: str | None = None, param_units: str | None = None, output_precision: int = 2,
    backend_specific_config: Mapping[str, Any] | None = None,
) -> tuple[str | int | None, str | int | None]:  # fmt: skip
    """Multiply-adds and trainable parameters of a model in evaluation mode, as text or as integers.

    `input_res` is the shape of the input without the batch, which is 1; `input_constructor` makes something else
    of it: a mapping becomes keyword arguments. The text is printed to `ost`, the standard output if None. If the model
    raises, the exception is printed, and both results are None. `ignore_modules` and the keys of `custom_modules_hooks` are
    module classes, or operators such as `torch.ops.aten.mm` with the `aten` backend. The one setting of
    `backend_specific_config` is `count_functional`: False leaves out what modules outside `torch.nn` run themselves.
    """
    if type(input_res) is not tuple or not input_res:
        raise InputError(f"input_res must be a tuple of at least one extent, not {input_res!r}")
    out = sys.stdout if ost is None else ost
    if input_constructor:
        batch = input_constructor(input_res)
    else:
        first = next(model.parameters(), None)
        batch = torch.empty((1, *input_res), dtype=None if first is None else first.dtype, device="meta")
    args, kwargs = ((), dict(batch)) if isinstance(batch, dict) else ((batch,), {})
    by_module = FLOPS_BACKEND(backend) is FLOPS_BACKEND.PYTORCH
    count: Callable[..., Any] = count_operators
    if by_module:
        count = partial(count_modules, functional=(backend_specific_config or {}).get("count_functional", True))
    try:
        found = count(model, (args, kwargs), ignore_modules, custom_modules_hooks or {})
    except Exception as exc:
        cause = exc.__cause__ or exc
        if isinstance(cause, StateError):  # the model is not as it was, which must not be overlooked
            raise
        why = "Flops estimation was not finished successfully because of the following exception: "
        print(f"{why}\n{type(cause)}: {cause}", file=out)
        traceback.print_exc()
        return None, None
    macs_text = partial(flops_to_string, units=flops_units, precision=output_precision)
    params_text = partial(params_to_string, units=param_units, precision=output_precision)
    params = _trainable(model)
    if by_module:
        images = max(len(args[0]), 1) if args else 1  # numbers are per image
        if not args:
            print("Warning! No positional inputs found for a module, assuming batch size is 1.", file=out)
        modules, by_name = found
        macs = by_name[""] // images
        free: Counter[type] = Counter()  # the cost of classes without children
        for name, module in modules.items() if verbose else ():
            if not any(module.children()) and type(module) not in ignore_modules:
                free[type(module)] += by_name[name]
        for kind, cost in free.items():
            if not cost:
                print(f"Warning: module {kind.__name__} is treated as a zero-op.", file=out)
        if print_per_layer_stat:

            def words(name: str, own: str) -> str:
                own_params, own_macs = _trainable(modules[name], ignore_modules), by_name[name] / images
                share = f"{own_macs / max(by_name[''] / images, 1):.3%} MACs"
                params_share = f"{own_params / max(params, 1):.3%} Params"
                return ", ".join([params_text(own_params), params_share, macs_text(own_macs), share, own])

            print(repr_with(model, words), file=out)
    else:
        counts, ignored, without_cost = found
        macs = sum(counts[WHOLE].values())
        lines = [f"Warning: {operator} operation is ignored" for operator in ignored]
        if verbose:
            lines += [f"Warning: {operator} operation is treated as a zero-op" for operator in without_cost]
        if print_per_layer_stat:
            lines.append(f"Total:{macs_text(macs)}")
            for group, operators in counts.items():
                lines += [f"Module:  {group}", *(f"{each}: {macs_text(n)}" for each, n in operators.items()), ""]
        print("\n".join([*lines, ""]), end="", file=out)
    return (macs_text(macs), params_text(params)) if as_strings else (macs, params)


# -- the cost of an operator ------------------------------------------------------------------------------------------

_ELEMENT_COSTS = ElementCosts(
    read={1: POOLINGS}, norm=(2, 1),
    made={
        1: "relu relu_ relu6 relu6_ prelu elu elu_ leaky_relu leaky_relu_ gelu gelu_ silu silu_ softmax add add_ mul mul_ "
        f"layer_norm {RESIZINGS}"
    },
)  # fmt: skip
_CELL_STATE_MACS = {"lstm": 10, "gru": 7, "rnn_tanh": 1, "rnn_relu": 1}
"""Per hidden element and step, besides the products and biases: how the gates meet the state."""
_CELLS: dict[type[nn.Module], int] = {nn.LSTMCell: 10, nn.GRUCell: 7, nn.RNNCell: 1}
_BIAS = {"_convolution": 2, "linear": 2, "bilinear": 3}  # Position of the bias among the arguments
_FACTORS = {"conv": 2, "matmul": 2, "bilinear": 3}
"""How many inputs of a recorded product are factors; the others are added."""
_ADDED = frozenset({"addmm", "addmm_", "addmv", "addbmm", "baddbmm", "baddbmm_", "addr"})
"""Products that always add something."""


def _call_macs(call: OperatorCall) -> int:
    """The cost of an operator by the rules of the `pytorch` backend."""
    name, inputs, outputs = call.name, call.inputs(), call.outputs()
    cost = _ELEMENT_COSTS.of(call)
    if cost is not None:
        return cost
    if name in ("hardtanh", "hardtanh_"):
        is_relu6 = [value.toIValue() for value in inputs[1:3]] == [0, 6]
        return outputs[0].numel if is_relu6 else 0
    total = 0
    for row in call.rows:
        if row.cost is None or not row.cost.macs:
            continue
        extra = 0  # what belongs to the products of a fused operator
        if row.op.kind == "attention":
            q, _, v = row.ins[:3]
            scores = row.cost.macs // (q.dims[-1] + v.dims[-1])
            extra = scores + q.numel  # softmax, scaling
        elif row.op.kind == "recurrent":
            extra = _bias_elements(row) + _hidden_elements(row) * _CELL_STATE_MACS[str(row.op.attrs["cell"])]
        total += (row.cost.macs + extra) * row.op.repeat
    if name in _ADDED or (name in _BIAS and inputs[_BIAS[name]].isCompleteTensor()):
        total += outputs[0].numel
    return total


def _bias_elements(row: Row) -> int:
    """How many elements a bias, or whatever is added to a product, is added to."""
    if row.op.kind == "recurrent":
        gates = CELLS[str(row.op.attrs["cell"])].gates
        return BIASES * gates * _hidden_elements(row) if row.op.attrs.get("bias") else 0
    factors = _FACTORS.get(row.op.kind)
    return row.outs[0].numel if factors is not None and len(row.ins) > factors else 0


def _hidden_elements(row: Row) -> int:
    """Elements of the hidden state of a recurrent layer, over all steps, layers and directions."""
    layers: Any = row.op.attrs["layers"]
    steps: Any = row.op.attrs["steps"]
    return int(steps * sum(hidden for _, hidden, _ in layers))


# -- modules, the `pytorch` backend -----------------------------------------------------------------------------------


def count_modules(
    model: nn.Module, given: Any, ignored: Collection[type], hooks: Mapping[type, Hook], *, functional: bool = True
) -> tuple[dict[str, nn.Module], dict[str, int]]:
    """The modules, and the multiply-adds of each with what is below it, by name.

    Every operator counts for the module that runs it and all above; a hook's number replaces its module's own.
    `functional=False` leaves out what modules outside `torch.nn` run themselves.
    """
    names = Names(model)
    kinds = {name: type(module) for name, module in names.modules.items()}
    own: Counter[str] = Counter()

    def after(module: nn.Module, args: Any, output: Any, name: str) -> None:
        """Gather what a user's hook adds to `module.__flops__`."""
        module.__flops__ = 0  # type: ignore[assignment]
        try:
            hooks[type(module)](module, args, output)
            own[name] += int(module.__flops__)  # type: ignore[arg-type]
        finally:
            del module.__flops__

    with ExitStack() as undo:
        for name in names.first:
            if kinds[name] in hooks:
                undo.callback(names.modules[name].register_forward_hook(partial(after, name=name)).remove)
        found = trace(model, *given, mode="eval")
    left_out = {*ignored, *hooks}
    for call in found.calls:
        name = names.registered(call.module)
        if not functional and not kinds[name].__module__.startswith("torch.nn."):
            continue
        # Inside a cell the arithmetic of the state has a number of its own.
        if not names.inside(name, left_out) and (kinds[name] not in _CELLS or call.macs):
            own[name] += _call_macs(call)
    for module_call in found.report.calls:
        name = names.registered(module_call.path)
        if kinds[name] in _CELLS and not names.inside(name, left_out):
            x, hidden = module_call.inputs[0], names.modules[name].hidden_size
            own[name] += x.numel // x.dims[-1] * hidden * _CELLS[kinds[name]]  # type: ignore[operator]
    for name in list(own):
        # A hook below a hooked or ignored module adds nothing more.
        if kinds[name] in ignored or (name and names.inside(name.rpartition(".")[0], left_out)):
            del own[name]
    total = with_below(own)
    called = {above for call in found.report.calls for above in names.lineage(names.registered(call.path))}
    # A name under which a shared module was never called shows what the module cost under its first.
    return names.modules, {name: total[name if name in called else names.canonical(name)] for name in names.modules}


def _trainable(module: nn.Module, ignored: Collection[Any] = ()) -> int:
    """Elements of the distinct parameters that receive gradients, without those of ignored classes."""
    found: dict[int, int] = {}
    parts = [module]
    while parts:
        part = parts.pop()
        if type(part) not in ignored:
            found.update((id(p), p.numel()) for p in part.parameters(recurse=False) if p.requires_grad)
            parts += part.children()
    return sum(found.values())


# -- operators, the `aten` backend ------------------------------------------------------------------------------------


def count_operators(
    model: nn.Module, given: Any, ignored: Collection[Any], hooks: Mapping[Any, Hook]
) -> tuple[dict[str, Counter[str]], list[str], list[str]]:
    """Contractions and the biases added to them: by the operator that the dispatcher runs, of the model and of each child.

    Then the operators that are ignored, and those that count nothing.
    """
    found = trace(model, *given, mode="eval")
    names = Names(model)
    by_name = {str(packet): hook for packet, hook in hooks.items()}
    left_out = {str(packet) for packet in ignored}
    counts: dict[str, Counter[str]] = {WHOLE: Counter()}
    skipped, free = [], []
    for row in found.report.rows:
        operator = row.op.raw.replace("::", ".")
        if operator in left_out:
            skipped.append(operator)
            continue
        if operator in by_name:
            number = by_name[operator](meta_tensors(row.ins), meta_tensors(row.outs))
        elif row.cost is not None and row.cost.macs:
            number = (row.cost.macs + _bias_elements(row)) * row.op.repeat
        else:
            free.append(operator)
            continue
        child = names.registered(row.op.module).partition(".")[0]
        for group in (WHOLE, child) if child else (WHOLE,):
            counts.setdefault(group, Counter())[operator] += number
    return counts, skipped, free


def flops_to_string(flops: float, units: str | None = None, precision: int = 2) -> str:
    """Multiply-adds with a unit: GMac, MMac, KMac, or the fitting one."""
    return _in_unit(flops, {"GMac": 10**9, "MMac": 10**6, "KMac": 10**3}, units, precision) or f"{flops} Mac"


def params_to_string(params_num: int, units: str | None = None, precision: int = 2) -> str:
    """A number of parameters with a unit: B, M, K, or the fitting one."""
    sizes = {"M": 10**6, "k": 10**3} if units is None else {"B": 10**9, "M": 10**6, "K": 10**3}
    return _in_unit(params_num, sizes, units, precision) or str(params_num)


def _in_unit(number: float, sizes: Mapping[str, int], units: str | None, precision: int) -> str:
    """In the given unit, or in the largest of which there is at least one; empty without."""
    for unit, size in sizes.items():
        if unit == units or (units is None and number // size > 0):
            return f"{round(number / size, precision)} {unit}"
    return ""
