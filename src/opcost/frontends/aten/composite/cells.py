"""Recurrent cells as their products and gates."""

from __future__ import annotations

from opcost.frontends.aten.call import Call
from opcost.frontends.aten.composite.parts import Parts, new, of
from opcost.frontends.aten.tensor import Tensor


def _gates(do: Parts, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = new((*x.shape[:-1], weight.shape[0]), x)
    if bias is None:
        return do("mm", y, self=x, mat2=do.turned(weight))
    return do("addmm", y, self=bias, mat1=x, mat2=do.turned(weight))


def _quarters(do: Parts, x: Tensor, count: int) -> list[Tensor]:
    shape = (*x.shape[:-1], x.shape[-1] // count)
    return [do.view(x, shape, x.stride()) for _ in range(count)]


@of("lstm_cell")
def _lstm_cell(do: Parts, call: Call) -> None:
    state, cell = call["hx"]
    all_gates = do.in_place(
        "add_.Tensor",
        _gates(do, call["input"], call["w_ih"], call["b_ih"]),
        other=_gates(do, state, call["w_hh"], call["b_hh"]),
    )
    parts = _quarters(do, all_gates, 4)
    enter, forget, leave = (do.in_place("sigmoid_", parts[i]) for i in (0, 1, 3))
    new_cell = do.in_place("tanh_", parts[2])
    kept = do("mul.Tensor", call.outs[1], self=forget, other=cell)
    kept = do.in_place("add_.Tensor", kept, other=do.like("mul.Tensor", enter, other=new_cell))
    do("mul.Tensor", call.outs[0], self=leave, other=do.like("tanh", kept))


@of("gru_cell")
def _gru_cell(do: Parts, call: Call) -> None:
    state = call["hx"]
    of_input = _quarters(do, _gates(do, call["input"], call["w_ih"], call["b_ih"]), 3)
    of_state = _quarters(do, _gates(do, state, call["w_hh"], call["b_hh"]), 3)
    reset, update = (
        do.in_place("sigmoid_", do.in_place("add_.Tensor", of_state[i], other=of_input[i])) for i in (0, 1)
    )
    fresh = do(
        "add.Tensor",
        new(state.shape, state),
        self=of_input[2],
        other=do.in_place("mul_.Tensor", of_state[2], other=reset),
    )
    fresh = do.in_place("tanh_", fresh)
    step = do.in_place("mul_.Tensor", do.like("sub.Tensor", state, other=fresh), other=update)
    do("add_.Tensor", call.outs[0], self=step, other=fresh)


@of("rnn_tanh_cell", "rnn_relu_cell")
def _rnn_cell(do: Parts, call: Call) -> None:
    both = do.in_place(
        "add_.Tensor",
        _gates(do, call["input"], call["w_ih"], call["b_ih"]),
        other=_gates(do, call["hx"], call["w_hh"], call["b_hh"]),
    )
    do("tanh" if "tanh" in call.base else "relu", call.outs[0], self=both)
