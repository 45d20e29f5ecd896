"""The words of TensorFlow Lite's schema: operators and element types by their numbers, and the fields of operators' options."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from opcost.core.parsing import Bad
from opcost.frontends.flatbuffer import F32, I8, I32, U8, U32, U64, Buffer, FlatTable, Pages
from opcost.frontends.nodes import MOST_AXES, MOST_CONTENT
from opcost.frontends.nodes.meaning import Content, DeclaredValue, GraphNode, NodeGraph, StoredValue

DTYPES = dict(
    enumerate(
        """
        float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant uint32
        uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2
        """.split()
    )
)

OPERATORS = dict(
    enumerate(
        """
        ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
        FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
        MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
        SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
        SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
        EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
        GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
        SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
        UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
        SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
        MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND
        SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL
        COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
        READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
        DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
        UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
        STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
        STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
        STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
        STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
        STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
        STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE
        STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE
        STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
        """.split()
    )
)

_FIELDS = """
ADD SUB MUL DIV L2_NORMALIZATION: fused
CONCATENATION: axis fused
CONV_2D: padding stride_w stride_h fused dilation_w=1 dilation_h=1
DEPTHWISE_CONV_2D: padding stride_w stride_h multiplier fused dilation_w=1 dilation_h=1
TRANSPOSE_CONV: padding stride_w stride_h fused
CONV_3D CONV_3D_TRANSPOSE: padding stride_d stride_w stride_h fused dilation_d=1 dilation_w=1 dilation_h=1
AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D: padding stride_w stride_h filter_w filter_h fused
FULLY_CONNECTED: fused format keep_num_dims?
BATCH_MATMUL: adj_x? adj_y?
LSTM: fused cell_clip/f proj_clip/f kernel
UNIDIRECTIONAL_SEQUENCE_LSTM: fused cell_clip/f proj_clip/f time_major? asymmetric? diagonal?
BIDIRECTIONAL_SEQUENCE_LSTM: fused cell_clip/f proj_clip/f merge_outputs? time_major?=1
RNN: fused
UNIDIRECTIONAL_SEQUENCE_RNN: time_major? fused
BIDIRECTIONAL_SEQUENCE_RNN: time_major? fused merge_outputs?
SVDF: rank fused
LOCAL_RESPONSE_NORMALIZATION: radius
EMBEDDING_LOOKUP_SPARSE: combiner
RESHAPE: new_shape/I
SQUEEZE: squeeze_dims/I
GATHER: axis batch_dims
MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL: keep_dims?
SPLIT SPLIT_V: count
STRIDED_SLICE: begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask offset?
CAST: from to
SPACE_TO_DEPTH DEPTH_TO_SPACE: block_size
PACK: count axis
UNPACK: num axis
ONE_HOT: axis
GELU: approximate?
REVERSE_SEQUENCE: seq_dim batch_dim
BUCKETIZE: boundaries/I
VAR_HANDLE: container/s shared_name/s
CALL: subgraph
IF: then else
WHILE STABLEHLO_WHILE: cond body
CALL_ONCE: init
REDUCE_WINDOW: function
STABLEHLO_COMPOSITE: name/s subgraph
STABLEHLO_CASE: branches/I
STABLEHLO_TRANSPOSE: permutation/L
STABLEHLO_CONCATENATE STABLEHLO_IOTA: axis/l
STABLEHLO_BROADCAST_IN_DIM: dims/L
STABLEHLO_SLICE: begins/L ends/L steps/L
STABLEHLO_DYNAMIC_SLICE: sizes/L
STABLEHLO_PAD: low/L high/L interior/L
STABLEHLO_REDUCE: dims/L body
STABLEHLO_REDUCE_WINDOW: window/L strides/L base/L dilations/L padding/L body
STABLEHLO_SORT: axis/l stable? comparator
STABLEHLO_DOT_GENERAL: batch_a/L batch_b/L summed_a/L summed_b/L
STABLEHLO_GATHER: offset_dims/L collapsed/L index_map/L index_axis/l sizes/L
STABLEHLO_SCATTER: sorted? window_dims/L inserted/L dims/L index_axis/l unique? body
STABLEHLO_CONVOLUTION: strides/L padding/L spread/L dilations/L reversal/? in_batch/l in_channels/l in_space/L kernel_in/l
    kernel_out/l kernel_space/L out_batch/l out_channels/l out_space/L groups/l batch_groups/l
"""
"""The fields of operators' options in the order of their slots: `name` a number, `name?` a flag, `name/form` something else."""

_BYTES = ("padding", "fused", "format", "kernel", "combiner", "from", "to", "merge_outputs", "time_major")
"""Numbers of one byte."""
_NUMBERS = {"?": U8, "b": I8, "i": I32, "l": struct.Struct("<q")}

FIELDS: dict[str, list[tuple[str, str, int]]] = {}  # Names, forms and defaults of the fields, by operator
for _line in _FIELDS.replace("\n    ", " ").strip().splitlines():
    _names, _, _words = _line.partition(":")
    _fields = []
    for _word in _words.split():
        _described, _, _default = _word.partition("=")
        _name, _, _form = _described.partition("/")
        _form = "?" if _name.endswith("?") else _form or ("b" if _name in _BYTES else "i")
        _fields.append((_name.rstrip("?"), _form, int(_default or 0)))
    FIELDS.update(dict.fromkeys(_names.split(), _fields))


def _options(op: str, table: FlatTable | None) -> dict[str, Any]:
    """What the options of an operator say; where a field is not stored, its default."""
    found: dict[str, Any] = {}
    for slot, (name, form, default) in enumerate(FIELDS.get(op, ())):
        if form in _NUMBERS:
            number = default if table is None else table.number(slot, _NUMBERS[form], default)
            found[name] = bool(number) if form == "?" else number
        elif table is not None and form in "IL":
            found[name] = table.numbers(slot, "i" if form == "I" else "q", 4 if form == "I" else 8)
        elif table is not None:
            found[name] = table.text(slot) if form == "s" else table.number(slot, F32, default)
    return found


# -- model: A TensorFlow Lite model as data: its graphs, and the signatures by which they are called.

IDENTIFIER = b"TFL3"


class LiteTensor(NamedTuple):
    """What the file declares of one tensor."""

    shape: tuple[int | None, ...] | None
    dtype: str
    quantized: bool
    variable: bool
    now: tuple[int, ...]  # The shape with which the file was written, where some of its extents are open


class LiteGraph(NamedTuple):
    """One graph, and the tensors in it by their names, in the order of their numbers."""

    graph: NodeGraph
    tensors: dict[str, LiteTensor]


class LiteSignature(NamedTuple):
    """A name by which a graph is called, and what it calls the graph's inputs."""

    name: str
    graph: int
    inputs: dict[str, str]  # The name of the tensor, by the name of the input


class LiteModel(NamedTuple):
    """Graphs, the first of which is the model's own, and signatures."""

    graphs: tuple[LiteGraph, ...]
    signatures: tuple[LiteSignature, ...]
    version: int
    description: str


def read_model(pages: Pages) -> LiteModel:
    """The model in these bytes."""
    root = Buffer(pages, 0, pages.size, pages.what).root(IDENTIFIER)
    codes = []
    for code in root.tables(1):
        number = max(code.number(0, I8), code.number(3, I32))
        name = OPERATORS.get(number, f"BUILTIN_{number}")
        codes.append(("custom", code.text(1) or "unnamed") if name == "CUSTOM" else ("", name))
    buffers = list(root.positions(4))
    graphs = tuple(_graph(table, codes, buffers) for table in root.tables(2))
    if not graphs:
        raise Bad("there is no graph in it")
    signatures = []
    for each in root.tables(7):
        place = each.number(4, U32)
        if place >= len(graphs):
            raise Bad(f"a signature calls the graph {place}, and there are {len(graphs)}")
        order = tuple(graphs[place].tensors)
        inputs = {entry.text(0): _named(order, [entry.number(1, U32)])[0] for entry in each.tables(0)}
        signatures.append(LiteSignature(each.text(2), place, inputs))
    return LiteModel(graphs, tuple(signatures), root.number(0, U32), root.text(3))


def _graph(table: FlatTable, codes: Sequence[tuple[str, str]], buffers: Sequence[int]) -> LiteGraph:
    tensors: dict[str, LiteTensor] = {}
    stored: dict[str, StoredValue] = {}
    for place, each in enumerate(table.tables(0)):
        label = each.text(3)
        name = label if label and label not in tensors else f"{label}#{place}"
        at, length = _data(table.buffer, buffers, each.number(2, U32))
        tensor = tensors[name] = _tensor(each, name, has_data=length > 0)
        if length or tensor.variable:  # what keeps its data from call to call
            shape = tuple(extent for extent in tensor.now or tensor.shape or () if extent is not None)
            if len(shape) != len(tensor.now or tensor.shape or ()):
                raise Bad(f"the stored tensor {name!r} has an open shape")
            content = None
            if each.table(6) is None and prod(shape) <= MOST_CONTENT and length <= 8 * MOST_CONTENT:  # it is not sparse
                raw = table.buffer.data.piece(table.buffer.check(at, length), length)
                content = Content.stored(shape, tensor.dtype, raw)
            stored[name] = StoredValue(name, shape, tensor.dtype, content)
    order = tuple(tensors)
    nodes = []
    for each in table.tables(3):
        place = each.number(0, U32)
        if place >= len(codes):
            raise Bad(f"an operator is of the kind {place}, and there are {len(codes)}")
        domain, op = codes[place]
        ins, outs = (_named(order, each.numbers(slot, "i", 4), left_out=-1) for slot in (1, 2))
        options = _options(op, each.table(4) or each.table(12))
        nodes.append(GraphNode(op, domain, outs[0] if outs else "", ins, outs, options))
    declared = {name: DeclaredValue(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    ends = [tuple(declared[name] for name in _named(order, table.numbers(slot, "i", 4))) for slot in (1, 2)]
    made = {each.name for each in ends[0]}.union(*(node.outputs for node in nodes))
    for name, tensor in tensors.items():
        if 0 in tensor.now and name not in made:  # nothing is stored of a tensor without elements
            stored[name] = StoredValue(name, tensor.now, tensor.dtype, Content(tensor.now, ()))
    kept = {name: tensor for name, tensor in stored.items() if name not in made}
    _name_by_readers(nodes, kept)
    return LiteGraph(NodeGraph(table.text(4), tuple(nodes), kept, ends[0], ends[1], declared), tensors)


def _name_by_readers(nodes: list[GraphNode], stored: Mapping[str, StoredValue]) -> None:
    """Give nodes that widen a stored weight the name of the layer that reads it."""
    widening = [
        (place, node)
        for place, node in enumerate(nodes)
        if node.op == "DEQUANTIZE" and node.outputs and node.inputs[:1] and node.inputs[0] in stored
    ]
    widened = {node.outputs[0]: node.inputs[0] for _, node in widening}
    readers = {name: node for node in reversed(nodes) for name in node.inputs if name in widened}
    for place, node in widening:
        if (reader := readers.get(node.outputs[0])) is not None:
            read = (widened.get(name, name) for name in reader.inputs)
            names = (reader.name, *(name for name in read if name in stored))
            nodes[place] = node._replace(name=next((name for name in names if "/" in name), node.name))


def _tensor(table: FlatTable, name: str, *, has_data: bool) -> LiteTensor:
    written = table.numbers(0, "i", 4)
    signature = table.numbers(7, "i", 4) or written
    if len(written) > MOST_AXES or any(extent < -1 for extent in (*written, *signature)):
        raise Bad(f"the tensor {name!r} has the shape {written[:MOST_AXES]}")
    number = table.number(1, I8)
    if number not in DTYPES:
        raise Bad(f"the tensor {name!r} has an element type of the number {number}")
    variable, quantization = bool(table.number(5, U8)), table.table(4)
    # A shape without axes is that of a scalar, or of a tensor of which nothing is known.
    ranked = bool(written) or has_data or variable or bool(table.number(8, U8))
    shape = tuple(None if extent < 0 else extent for extent in signature) if ranked else None
    now = written if -1 not in written and len(written) == len(signature) else ()
    quantized = quantization is not None and bool(quantization.vector(2, 4))
    return LiteTensor(shape, DTYPES[number], quantized, variable, now)


def _data(buffer: Buffer, buffers: Sequence[int], place: int) -> tuple[int, int]:
    """Place and length of the data of a tensor; zeros: none of it is in the file."""
    if not 0 < place < len(buffers):
        return 0, 0
    table = FlatTable(buffer, buffers[place])
    at, length = table.data(0)
    if length:
        return at, length
    at, length = table.number(1, U64), table.number(2, U64)  # behind the graph, in files of more than two gigabytes
    if at > 1 and length and at + length > buffer.end:
        raise Bad(f"the data of a tensor is at byte {at:,}, behind the end of the file")
    return (at, length) if at > 1 else (0, 0)


def _named(order: Sequence[str], numbers: Iterable[int], left_out: int | None = None) -> tuple[str, ...]:
    """The names of tensors by their numbers."""
    found = []
    for at in numbers:
        if at != left_out and not 0 <= at < len(order):
            raise Bad(f"the tensor {at} is named, and there are {len(order)}")
        found.append("" if at == left_out else order[at])
    return tuple(found)
