"""Recurrent layers: one step or a whole sequence, in one direction or two, and the rank-one filters of SVDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from opcost.core.graph import NO_ATTRS
from opcost.core.shapes import Dims, divided, known, times, total
from opcost.frontends.nodes.call import Call, Made, Meaning, Out, numel
from opcost.frontends.tflite.table import handles, then


class _Layer(NamedTuple):
    """One direction: its weights of input and of projection, its biases, and what normalizes its gates."""

    weights: Sequence[Made | None]
    projection: Made | None
    biases: Sequence[Made | None]
    normalizers: Sequence[Made | None] = ()
    peepholes: Sequence[Made | None] = ()
    aux: Made | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of the input, of the cell and of the result."""
        hidden, width = known(next(made for made in reversed(self.weights) if made is not None).dims)
        if self.aux is not None:
            width += known(self.aux.dims)[-1]
        return width, hidden, known(self.projection.dims)[0] if self.projection is not None else hidden


def _at(call: Call, *places: int) -> list[Made | None]:
    return [call.at(place) for place in places]


def _lstm_layer(call: Call, first: int, normalizers: int | None, aux: int | None = None) -> _Layer:
    """The seventeen inputs of a direction in their order: weights, states' weights, peepholes, biases, projection."""
    places = range(first, first + 17)
    return _Layer(
        weights=_at(call, *places[:4]),
        peepholes=_at(call, *places[8:11]),
        biases=[*_at(call, *places[11:15]), call.at(places[16])],
        projection=call.at(places[15]),
        normalizers=_at(call, *range(normalizers, normalizers + 4)) if normalizers else (),
        aux=call.at(aux) if aux is not None else None,
    )


def _cells(call: Call, cell: str, steps: int, layers: Sequence[_Layer], outs: Sequence[Out]) -> Meaning:
    """All steps of a layer in its directions; biases and gates that the rule does not have are operators of their own."""
    x = call[0]
    for layer in layers:
        added = [made for made in layer.biases if made is not None]
        if added:
            elements = steps * sum(numel(made.shape) for made in added)
            call.step("elementwise", {"fn": "add", "elements": elements}, added, [])
        peeped = [made for made in layer.peepholes if made is not None]
        if peeped:
            elements = steps * sum(numel(made.shape) for made in peeped)
            call.step("elementwise", {"fn": "fma", "elements": elements}, peeped, [])
        for made in layer.normalizers:
            if made is not None:
                shape = (steps, *known(made.dims))
                (gate,) = call.step("view", NO_ATTRS, [x], [Out(shape, made.dtype, home=x)])
                call.step("norm", {"fn": "layer"}, [gate, made], [Out(shape, made.dtype)])
    sizes = tuple(layer.sizes for layer in layers)
    if cell == "lstm" and layers[0].weights[0] is None:  # the input gate is what the forget gate leaves
        macs = sum(3 * cells * (width + out) + (cells * out if out != cells else 0) for width, cells, out in sizes)
        units = steps * sum(cells for _, cells, _ in sizes)
        call.step("elementwise", {"fn": "lstm_cell", "elements": units}, [x], [])
        return Meaning("matmul", {"macs": steps * macs}, outs)
    return Meaning("recurrent", {"cell": cell, "steps": steps, "layers": sizes}, outs)


def _rnn(call: Call) -> str:
    return "rnn_tanh" if call.whole("fused") == 4 else "rnn_relu"


@handles("LSTM", "RNN")
def _step(call: Call) -> Meaning:
    x = call[0]
    if call.node.op == "RNN":
        layer = _Layer(_at(call, 1), None, _at(call, 3))
        return _cells(call, _rnn(call), known(x.dims[:1])[0], [layer], [Out((x.dims[0], layer.sizes[2]), x.dtype)])
    if call.whole("kernel") == 1:  # one weight for input and state, and one state behind the other
        weight, state = call[2], call[4]
        depth, width = known(weight.dims)
        attrs: dict[str, Any] = {"depth": width, "bias": True}
        gates = call.step("matmul", attrs, [x, weight, call[3]], [Out((x.dims[0], depth), x.dtype)])[0]
        outs = [Out(state.shape, x.dtype), Out(state.shape, x.dtype)]
        outs += [Out((x.dims[0], width), x.dtype), Out(gates.shape, x.dtype, home=gates)]
        return Meaning("elementwise", {"fn": "lstm_cell", "elements": numel(state.shape)}, outs, [gates, state])
    layer = _lstm_layer(call, 1, 20)
    return _cells(call, "lstm", known(x.dims[:1])[0], [layer], [Out((x.dims[0], layer.sizes[2]), x.dtype)])


@handles("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN")
def _sequence(call: Call) -> Meaning:
    x, lstm = call[0], call.node.op.endswith("LSTM")
    layer = _lstm_layer(call, 1, 20) if lstm else _Layer(_at(call, 1), None, _at(call, 3))
    outs = [Out((*x.dims[:2], layer.sizes[2]), x.dtype)]
    return _cells(call, "lstm" if lstm else _rnn(call), numel(x.dims[:2]), [layer], outs)


@handles("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN")
def _both_ways(call: Call) -> Meaning:
    x, lstm = call[0], call.node.op.endswith("LSTM")
    if lstm:
        layers = [_lstm_layer(call, 1, None, 41), _lstm_layer(call, 18, None, 45)]  # of the forget gate
    else:
        layers = [_Layer(_at(call, at), None, _at(call, at + 2), aux=call.at(aux)) for at, aux in ((1, 10), (5, 11))]
    widths: list[Any] = [layer.sizes[2] for layer in layers]
    if call.flag("merge_outputs"):
        widths = [total(widths)]
    outs = [Out((*x.dims[:2], width), x.dtype) for width in widths]
    return _cells(call, "lstm" if lstm else _rnn(call), numel(x.dims[:2]), layers, outs)


@handles("SVDF")
def _svdf(call: Call) -> Meaning:
    """Each filter is a product along the features, then one along the steps that are remembered; ranks are added up."""
    x, features, time, bias = call[0], call[1], call[2], call.at(3)
    batch, filters, memory = x.dims[0], known(features.dims)[0], known(time.dims)[1]
    rank = call.whole("rank") or 1
    units = divided(filters, rank, "filters", "of a rank")
    shape: Dims = (batch, units)
    macs = known((times(batch, filters),))[0] * (known(features.dims)[1] + memory)
    if rank > 1:
        call.step("elementwise", {"fn": "add", "elements": numel(shape) * (rank - 1)}, [x], [])
    attrs: dict[str, Any] = {"macs": macs, **then(call), **({"bias": True} if bias is not None else {})}
    return Meaning("matmul", attrs, [Out(shape, x.dtype)])
