"""The closed list of operator kinds: our words for what an operator computes, its tensors, and the attributes a rule reads.

A front end translates its framework's operator into one kind, puts the tensors in the stated order and fills the
stated attributes; the rule of that kind then needs to know no framework. Optional tensors are in [brackets], `...` stands
for any more. A form of its own, as the gradient, is told by an attribute that only it has.
Adding a kind is a reviewed change: an entry here and a rule; the page of rules is written from both.
"""

from __future__ import annotations

from collections.abc import Mapping

from opcost.core.kinds import functions as names
from opcost.core.kinds.attribute import Attribute, flag, number_of, one_of, some_of, triples, whole, wholes, word
from opcost.core.kinds.kind import Form, Kind, form
from opcost.errors import GraphError, UnknownName

__all__ = ["CONTRACTIONS", "KINDS", "Attribute", "Form", "Kind", "check_operator"]


def _kind(name: str, meaning: str, *forms: Form, **attributes: Attribute) -> Kind:
    if any(each.told_by == "grad" for each in forms):
        attributes["grad"] = flag("it computes gradients")
    return Kind(name, meaning, forms, attributes)


def _gradient(signature: str, *needs: str) -> Form:
    return form(signature, *needs, told_by="grad")


_GEOMETRY = {
    "kernel": wholes("its extent along each axis, where no weight tells it: for the receptive field"),
    "stride": wholes("one number for each axis: for the receptive field"),
    "dilation": wholes("one number for each axis: for the receptive field"),
}
_THEN = some_of(names.ELEMENTWISE, "elementwise functions that the same operator applies to y, maybe with more tensors")
_MACS = whole("their exact number, where no shape tells it: a packed weight, sparse operands")

_TABLE = (
    # contractions: the only kinds with MACs
    _kind(
        "conv",
        "a convolution of any rank; the weight is (out, in/groups, *kernel)",
        form("x, weight, [bias] -> y, ..."),
        form("grad_y, x, weight, ... -> ...", told_by="grads"),
        form("x, ... -> y", told_by="macs"),
        form("x, weight, [bias], ... -> y", told_by="sampled"),
        form("x, weight, [bias], ... -> y, ...", told_by="then"),
        transposed=flag("the weight is (in, out/groups, *kernel)"),
        grouped=flag("the groups are an axis of the weight, in front"),
        grads=some_of(("input", "weight", "bias"), "the gradients that are computed"),
        then=_THEN,
        sampled=whole("source elements from which each element under the kernel is interpolated (deformable)"),
        macs=_MACS,
        bias=flag("a bias is added that is packed with the weight"),
        **_GEOMETRY,
    ),
    _kind(
        "matmul",
        "a matrix product, also batched; scales and indices of packed operands come last",
        form("a, [b], [added], ... -> y, ...", "depth"),
        form("... -> y, ...", told_by="macs"),
        depth=whole("products summed into one output element"),
        groups=whole("output matrices that share the depth (a ragged grouped product)"),
        bias=flag("something is added"),
        macs=_MACS,
        then=_THEN,
    ),
    _kind(
        "attention",
        "scaled dot-product attention of q, k, v as (*batch, length, features)",
        form("q, k, v, [mask] -> y, ..."),
        _gradient("grad_y, q, k, v, ... -> ..."),
        causal=flag("a query sees only the keys before it"),
        heads_last=flag("the tensors are (*batch, length, heads, features)"),
        sequences=whole("how many equally long ones lie packed along the length"),
        products=number_of(4, 5, "matrix products of the backward kernel, 5 unless told"),
    ),
    _kind(
        "recurrent",
        "all steps, layers and directions of a recurrent network",
        form("x, ... -> y, ...", "cell", "steps", "layers"),
        _gradient("... -> ...", "cell", "steps", "layers"),
        cell=one_of(names.CELLS, "what happens in one step"),
        steps=whole("time steps times batch, their sum if packed"),
        layers=triples("input size, hidden size and output size after projection, for each layer and direction"),
        bias=flag("every gate has a bias on the input's and on the state's side"),
        constant_input=flag("nobody asks for the gradient of the first layer's input"),
        constant_states=whole("sequences of whose first state nobody asks for the gradient"),
    ),
    _kind("bilinear", "y_o = x1 W_o x2; the weight is (out, in1, in2)", form("x1, x2, weight, [bias] -> y")),
    _kind(
        "einsum",
        "an Einstein summation, operands contracted pairwise from left to right",
        form("operand, ... -> y", "equation"),
        equation=word("with explicit output, without spaces or ellipsis"),
    ),
    # arithmetic without MACs
    _kind(
        "elementwise",
        "a function of each element, inputs broadcast",
        form("... -> ...", "fn"),
        fn=one_of(names.ELEMENTWISE, "what is computed for each element"),
        elements=whole("how many are computed, where the outputs do not tell it"),
    ),
    _kind(
        "norm",
        "a normalization",
        form("x, ... -> y, ...", "fn"),
        _gradient("grad_y, x, ... -> ...", "fn"),
        fn=one_of(names.NORMS, "over which elements, and by which moments"),
        training=flag("batch statistics are computed"),
        affine=whole("how many of weight and bias are applied, where the inputs after x do not tell it"),
        window=whole("elements under the sum of a local response norm"),
    ),
    _kind(
        "softmax",
        "softmax along an axis",
        form("x, ... -> y, ..."),
        _gradient("grad_y, y, ... -> grad_x"),
        fn=one_of(("softmax", "log_softmax"), "itself or its logarithm"),
    ),
    _kind(
        "pool",
        "a window reduced to one element, or put back",
        form("x, ... -> y, [indices]", "fn", "window"),
        _gradient("grad_y, ... -> grad_x", "fn"),
        fn=one_of(names.POOLS, "what is left of the window"),
        window=whole("elements under one output (adaptive: the mean, ceil(in/out) per axis)"),
        **_GEOMETRY,
    ),
    _kind(
        "reduce",
        "a reduction along axes, or a running one",
        form("x, ... -> ...", "fn"),
        fn=one_of(names.REDUCTIONS, "what is left of the elements along the axes"),
        each=flag("every input is reduced to an output of its own"),
    ),
    _kind(
        "resize",
        "an interpolation on a regular grid",
        form("x, ... -> y", "fn"),
        _gradient("grad_y, ... -> grad_x", "fn"),
        fn=one_of(names.RESIZES, "how it is interpolated"),
        taps=whole(
            "source elements under one output element, where a filter is wider than fn says (antialiased, lanczos)"
        ),
    ),
    _kind(
        "sample",
        "values at computed positions: grid_sample, roi_align, deformable gather",
        form("x, grid, ... -> y, ..."),
        _gradient("grad_y, ... -> ..."),
        taps=whole("source elements per output element (4 unless told)"),
    ),
    _kind(
        "loss",
        "a loss that the framework computes in one operator",
        form("input, target, ... -> y, ...", "fn"),
        _gradient("grad_y, input, target, ... -> ...", "fn"),
        fn=one_of(names.LOSSES, "which loss"),
    ),
    _kind(
        "distance",
        "all distances between the rows of a (*batch, p, m) and of b (*batch, r, m)",
        form("a, [b] -> y"),
        _gradient("grad_y, a, ... -> ..."),
    ),
    _kind(
        "fft",
        "a Fourier transform",
        form("x, ... -> y", "lengths"),
        lengths=wholes("the transformed lengths"),
        real=flag("one side is real"),
    ),
    _kind(
        "sort",
        "elements compared with each other (sort, topk, unique), or looked for (searchsorted: x are the values)",
        form("x, ... -> ...", "length"),
        length=whole("elements compared together"),
        selected=whole("how many are kept, where the rest is not sorted (topk)"),
    ),
    _kind(
        "quantize",
        "scale, round and clamp, or the way back",
        form("x, ... -> y, ..."),
        elements=whole("how many are scaled, where several lie packed in one of y"),
    ),
    _kind(
        "linalg",
        "a matrix factorization or solver",
        form("matrix, ... -> ...", "fn"),
        fn=one_of(names.FACTORIZATIONS, "which factors or solution"),
    ),
    _kind(
        "random",
        "drawn values",
        form("... -> y, ..."),
        fn=one_of(("dropout",), "x is masked and scaled by what is drawn"),
        overwrites=flag("in place: the first input is only written"),
    ),
    # data movement
    _kind(
        "embedding",
        "rows of a table looked up",
        form("table, indices, ... -> y, ..."),
        _gradient("grad_y, indices, ... -> grad_table"),
        reduce=one_of(names.BAGS, "how rows are combined"),
        weighted=flag("rows are multiplied by weights before they are combined"),
    ),
    _kind("gather", "elements picked by index or mask", form("x, ... -> y, ...")),
    _kind(
        "scatter",
        "elements put by index",
        form("x, ... -> y, ..."),
        fn=one_of(names.SCATTERS, "what happens to the element that was there"),
        elements=whole("how many are put, where the size of the third tensor, or of the last, does not tell it"),
        overwrites=flag("in place: of x only the elements put are moved"),
    ),
    _kind(
        "copy",
        "elements moved or converted, not computed: cat, clone, pad, cast",
        form("... -> ..."),
        overwrites=flag("in place: the first input is the destination and is only written"),
    ),
    _kind("create", "a constant or a range; the input is a template or, in place, the destination", form("... -> ...")),
    _kind(
        "view",
        "another look at the same memory, or only its metadata: free",
        form("... -> ..."),
        shapes=flag("it works out shapes and indices, which is done before anything runs"),
    ),
    _kind(
        "collective",
        "communication between ranks",
        form("... -> ...", "fn"),
        fn=one_of(names.COLLECTIVES, "who gives what to whom"),
        group=whole("number of ranks"),
    ),
    _kind("unknown", "no rule: reported under coverage, never zero", form("... -> ...")),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _TABLE}

CONTRACTIONS = ("conv", "matmul", "attention", "recurrent", "bilinear", "einsum")
"""The kinds that have multiply-accumulates."""


def check_operator(kind: str, raw: str, attrs: Mapping[str, object], ins: int, outs: int) -> None:
    """Raise `GraphError` if an operator is not what its kind says; one that nobody knows may have any attributes."""
    known = KINDS.get(kind)
    if known is None:
        raise GraphError(f"operator {raw or '(unnamed)'}: {UnknownName('kind', kind, KINDS)}")
    if kind != "unknown" and (fault := known.fault(attrs, ins, outs)):
        raise GraphError(
            f"{kind} operator {raw or '(unnamed)'}: {fault}",
            hint=f"opcost rules {kind} shows what such an operator has",
        )
