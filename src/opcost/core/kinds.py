"""The closed list of operator kinds: our words for what an operator computes, and the attributes a rule reads.

A front end translates its framework's operator into one kind, puts the tensors in the stated order and fills the
stated attributes; the rule of that kind then needs to know no framework. Optional attributes are in [brackets].
With [grad=True] the operator computes gradients: the gradient of the output comes first among the inputs.
Adding a kind is a reviewed change: a line here, a rule, a line in the docs (a test demands both).
"""

from __future__ import annotations

KINDS: dict[str, str] = {
    # contractions: the only kinds with MACs
    "conv": "ins x, weight, [bias]; outs y; weight is (out, in/groups, *kernel), or (in, out/groups, *kernel) with "
    "[transposed=True], with the groups as an axis of their own in front if [grouped=True]. Gradient: ins grad_y, x, weight "
    "with [grads=('input', 'weight', 'bias')] naming what is computed; "
    "[then] = names of elementwise functions applied to y by the same operator; [sampled] = source elements from which each "
    "element under the kernel is interpolated (deformable); [macs] and [bias=True] where the weight is no tensor (packed); "
    "[stride], [dilation] and [kernel] (where the weight does not tell it), one number for each axis: for the receptive field",
    "matmul": "ins a, b, [added]; outs y; depth = products summed into one output element; [groups] where a ragged "
    "grouped product has that many output matrices sharing the depth; [bias=True] if something is added; "
    "[macs] = exact number where no shape tells it (sparse operands); [then] as for conv",
    "attention": "ins q, k, v as (*batch, length, features), [mask]; outs y, ...; [causal=True]; [heads_last=True] for "
    "(*batch, length, heads, features); [sequences] = how many equally long ones lie packed along the length; "
    "[grad=True] with ins grad_y, q, k, v and [products] = matrix products of the backward kernel (default 5)",
    "recurrent": "ins x, ...; outs y, ...; cell=lstm|gru|rnn_tanh|rnn_relu; steps = time steps times batch (their sum if "
    "packed); layers = a tuple per layer and direction of (input size, hidden size, output size after projection); "
    "[bias=True]; [grad=True]",
    "bilinear": "ins x1, x2, weight (out, in1, in2), [bias]; outs y",
    "einsum": "ins operands; outs y; equation with explicit output and without spaces or ellipsis: operands are "
    "contracted pairwise from left to right",
    # arithmetic without MACs
    "elementwise": "ins any, broadcast; outs y; fn = a name of rules.elementwise.FLOPS_PER_ELEMENT; "
    "[elements] = how many are computed, where the outputs do not tell it",
    "norm": "ins x, [weight], [bias], ...; outs y, ...; fn=batch|layer|group|instance|rms|local_response|weight|lp; "
    "[training=True] if batch statistics are computed; [affine] = how many of weight and bias are applied, where the inputs "
    "after x do not tell it; [window] of local_response; [grad=True]",
    "softmax": "ins x; outs y; [fn=softmax|log_softmax]; [grad=True]",
    "pool": "ins x; outs y, [indices]; fn=max|avg|lp|adaptive_max|adaptive_avg|unpool; window = elements under one "
    "output (adaptive: the mean, ceil(in/out) per axis); [kernel], [stride], [dilation] as for conv; [grad=True]",
    "reduce": "ins x; outs y; fn = a name of rules.reduce.FLOPS_PER_INPUT (sum, mean, var, max, any, norm, cumsum, "
    "...); [each=True] if every input is reduced to an output of its own",
    "resize": "ins x; outs y; fn=nearest|linear|bilinear|trilinear|bicubic|area; [taps] = source elements under one output "
    "element, where a filter is wider than fn says (antialiased); [grad=True]",
    "sample": "ins x, grid; outs y: values at computed positions (grid_sample, roi_align, deformable gather); "
    "[taps] = source elements per output element (default 4); [grad=True]",
    "loss": "ins input, target, ...; outs y; fn = a name of rules.loss.LOSSES; [grad=True]",
    "distance": "ins a (*batch, p, m), b (*batch, r, m); outs (*batch, p, r); [grad=True]",
    "fft": "ins x; outs y; lengths = a tuple of transformed lengths; [real=True]",
    "sort": "ins x, ...; outs y, [indices]; length = elements compared together (sort, topk, unique; searchsorted, where x "
    "are the values looked for); [selected] = how many are kept, where the rest is not sorted (topk)",
    "quantize": "ins x, ...; outs y: scale, round, clamp, or the way back",
    "linalg": "ins the matrix, [right-hand sides]; outs ...; fn = a name of rules.linalg.THIRDS (inverse, solve, qr, ...)",
    "random": "ins none, parameters or x; outs y, ...: drawn values; [fn=dropout] draws, compares, masks and scales x; "
    "[overwrites=True] in place: the first input is only written",
    # data movement
    "embedding": "ins table, indices, ...; outs y: rows looked up; [reduce=sum|mean|max] if rows are combined; "
    "[weighted=True]; [grad=True] with ins grad_y, indices; outs the table's gradient",
    "gather": "ins x, indices, ...; outs y: elements picked by index or mask",
    "scatter": "ins x, indices, source, ...; outs y: elements put by index; [fn=copy|add|mul|max|min|mean]; "
    "[elements] = how many are put, where the source's size does not tell it; [overwrites=True] in place: of x only the "
    "elements put are moved",
    "copy": "ins any; outs any: elements are moved or converted, not computed (cat, clone, pad, cast); "
    "[overwrites=True] in place: the first input is the destination and is only written",
    "create": "ins none or a template or, in place, the destination; outs y: filled with a constant or a range",
    "view": "ins x; outs y: another look at the same memory, or only its metadata; free; [shapes=True] if it works out "
    "shapes and indices, which is done before anything runs",
    "collective": "ins x; outs y; fn=all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|send|recv|wait; "
    "[group] = number of ranks",
    "unknown": "no rule: reported under coverage, never zero",
}

CONTRACTIONS = ("conv", "matmul", "attention", "recurrent", "bilinear", "einsum")
"""The kinds that have multiply-accumulates."""
