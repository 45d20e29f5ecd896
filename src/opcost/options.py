"""Every option of counting, predicting, fitting, sweeping, profiling, comparing and checking, declared once.

Each class holds the keyword arguments of one function of `opcost`, as editors see them. The same declarations make the flags of
the command line (`opcost.cli.flags`), the keys of budget files and the table in docs/options.md. To add an option, declare it
here and read it where it takes effect.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from opcost.core.option import Keep, Mode, Option, Precision, Quantize, Step, Text, ZeroGrad
from opcost.distributed.clusters import Cluster
from opcost.distributed.mesh import Mesh

Shape: TypeAlias = "str | Sequence[int]"
Shapes: TypeAlias = "Shape | Sequence[Shape | Shapes] | Mapping[str, Shape | Shapes]"
"""One shape, a list of them, or shapes by the names of arguments; an argument may itself be a list or a mapping."""
Dtype: TypeAlias = "str | object"  # the name of an element type, or a framework's own object for one
Dtypes: TypeAlias = "Dtype | Sequence[Dtype | None] | Mapping[str, Dtype]"
Causal: TypeAlias = Literal["full", "half"]
Side: TypeAlias = Literal["device", "host"]
Measure: TypeAlias = Literal["time", "wait"]
Execution: TypeAlias = Literal["graph", "eager", "compiled"]
Engine: TypeAlias = Literal["transformers", "vllm"]
PipelineSchedule: TypeAlias = Literal["1f1b", "gpipe", "interleaved-1f1b", "zero-bubble", "zero-bubble-v"]
File: TypeAlias = str | PathLike[str]
Pairs: TypeAlias = tuple[Annotated[str, "name=value"], ...]  # what is typed of a mapping: name=value, repeated

TEXT = "Language model"
PRECISION = "Precision"
STEP = "Training step"
DEVICE = "Device"
RANKS = "Many ranks"
LAYOUT = "Layouts"
COUNTING = "Counting"
RUNNING = "Running"
BUDGET = "Budget"
SIZE = "Sizes"


def _python(help_text: str, default: Any = None) -> Option:
    return Option(help_text, default=default, python_only=True)


def _limit(name: str, metavar: str, help_text: str) -> Option:
    return Option(help_text, BUDGET, metavar, flags=(f"--max-{name.replace('_', '-')}",), typed=str)


# Each option is a row of a table: name, type, help, group, and what its flag looks like.
# fmt: off


class OfModel(TypedDict, total=False):
    """Which model, and on which inputs: for everything that counts or runs one."""

    set: Annotated[Mapping[str, object] | None, Option(
        "An argument of the class or function that makes the model, as name=value; for hf: an entry of the configuration, "
        "nested ones with dots. May be repeated.", metavar="NAME=VALUE", typed=Pairs)]
    # Shapes | None: a recursive type, which evaluates to nothing that could be checked here
    shapes: Annotated[Any, Option(
        "An input as [name:]1x3x224x224[:type]; repeated for several arguments. Without any, default inputs of the model.",
        flags=("--input", "-i"), metavar="SHAPE", typed=tuple[str, ...])]
    dtypes: Annotated[Any, _python("Element types of the inputs that `shapes` describes, in the same form.")]
    kwargs: Annotated[Mapping[str, Any] | None, Option(
        "A keyword argument of the model's forward that is not a tensor, as name=value. May be repeated.",
        flags=("--arg",), metavar="NAME=VALUE", typed=Pairs)]
    batch: Annotated[int | None, Option("Batch size of the default inputs.", metavar="N")]
    tokens: Annotated[int | None, Option("Sequence length of the default inputs.", metavar="N")]
    image: Annotated[int | None, Option("Height and width of default images.", metavar="N")]
    dtype: Annotated[Any, Option(
        "Element type of the model and of its default inputs, such as bf16.", PRECISION, "TYPE", typed=str)]
    backward: Annotated[bool, Option("Add the backward pass.", STEP, default=False)]
    mode: Annotated[Mode | None, Option(
        "Training or inference mode. Without either: training where the backward pass is counted, else inference.",
        STEP, flags=("--train",), negative="--eval", typed=bool)]
    options: Annotated[Mapping[str, Any] | None, _python(
        "Options that only the front end or recorder of this source has, by name.")]


class OfStep(OfModel, total=False):
    """What is run: for everything that counts or plans a pass or step."""

    precision: Annotated[str | Precision | None, Option(
        "float32, bfloat16 or float16 for model and inputs, or forward under autocast: bf16-mixed, fp16-mixed.",
        PRECISION, "NAME", typed=str)]
    quantize: Annotated[Quantize | None, Option(
        "Weights of linear layers as torchao stores them: int8, int4 (groups of 128), or fp8 with activations in fp8 too. In "
        "training: products in fp8 (fp8-gather: FSDP also sends weights so; fp8-rows: a scale for each row).", PRECISION)]
    optimizer: Annotated[bool | str | Callable[[Any], Any] | None, Option(
        "Add the backward pass and one update by an optimizer of torch.optim, by default sgd; adamw8bit and similar "
        "names keep their state in eight bits, adamw_fused updates in fused kernels.", STEP, "[NAME]", typed=str)]
    freeze: Annotated[str | Sequence[str], Option(
        "Do not train the modules and parameters whose path matches, such as 'model.*'. May be repeated.", STEP, "PATTERN",
        default=(), typed=tuple[str, ...])]
    lora: Annotated[str | Mapping[str, Any] | None, Option(
        "Train only low-rank adapters of these linear layers: r=16,targets=q_proj,v_proj; alpha=32 scales them.", STEP,
        "r=N,targets=NAME", typed=str)]
    expandable_segments: Annotated[bool, Option(
        "Memory of a device as with PYTORCH_ALLOC_CONF=expandable_segments:True.", DEVICE, default=False)]
    rules: Annotated[Mapping[str, Any] | None, _python(
        'Cost rules of operators that opcost does not know: {"library::operator": rule}.')]


class Costing(OfStep, total=False):
    """What is counted: for everything that counts a model."""

    prefill: Annotated[int | None, Option("Read N tokens of a prompt at once into an empty cache.", TEXT, metavar="N")]
    decode: Annotated[int | None, Option(
        "Process the next N tokens against a cache: --decode 1 --cache 4096.", TEXT, metavar="N")]
    cache: Annotated[int | None, Option("Tokens that are in the cache before --decode.", TEXT, metavar="N")]
    static: Annotated[int | None, Option("Use a static cache of N tokens instead of a growing one.", TEXT, metavar="N")]
    cache_dtype: Annotated[Any, Option(
        "Element type of the cache, such as int8, for its size in memory.", TEXT, "TYPE", typed=str)]
    text: Annotated[Text | None, _python("The five options above as one value: `opcost.Text(prefill=1024)`.")]
    channels_last: Annotated[bool, Option(
        "Images and weights of convolutions in the memory format channels_last.", PRECISION, default=False)]
    checkpoint: Annotated[str | Sequence[str], Option(
        "Recompute the activations of modules whose path ends as 'blocks.*', or is '.blocks.*', instead of keeping them. "
        "May be repeated.", STEP, "PATTERN", default=(), typed=tuple[str, ...])]
    checkpoint_keep: Annotated[Keep | None, Option(
        "Of checkpointed modules keep the results of attention and of all products, or of every second one (alternate), as "
        "torchtitan's selective checkpointing does.", STEP)]
    accumulate: Annotated[int, Option(
        "Passes forward and backward before each update (gradient accumulation).", STEP, "N", default=1)]
    zero_grad: Annotated[ZeroGrad, Option(
        "Gradients after the update: freed (none), or kept as zeros.", STEP, default="none")]
    step: Annotated[Step | None, _python('The optimizer and the four options above as one: `opcost.Step(optimizer="adamw")`.')]
    real: Annotated[bool | None, Option(
        "Run on real weights and tensors, or never. Without either: only where control flow depends on float values.",
        COUNTING, negative="--no-real")]
    causal: Annotated[Causal, Option(
        "Count the full square of causal attention, or only the unmasked half.", COUNTING, default="full")]


class OfShards(TypedDict, total=False):
    """How a model is spread over ranks, whatever the mesh is."""

    reduce_dtype: Annotated[str | None, Option(
        "Element type in which FSDP sums gradients. Without it: float32 in mixed precision, else their own.", RANKS, "TYPE")]
    tp_plan: Annotated[File | Mapping[str, str] | None, Option(
        'JSON file of styles of tensor parallelism by the pattern of modules, {"layers.*.wq": "colwise"}, in place of the '
        "model's own plan or the usual names of layers.", RANKS, "FILE", typed=Path)]
    sequence_parallel: Annotated[bool, Option(
        "With tp, norms, dropout and residuals have parts of the sequence, gathered before layers and scattered behind them.",
        RANKS, default=False)]
    loss_parallel: Annotated[bool, Option(
        "With tp, the loss is computed on parts of the vocabulary, and logits are not gathered.", RANKS, default=False)]
    experts: Annotated[str | Sequence[str], Option(
        "With ep, modules of experts that send tokens, in place of the model's own plan: layers.*.moe.experts.", RANKS,
        "PATTERN", default=())]
    ring: Annotated[bool, Option(
        "With cp, keys and values are passed on from rank to rank, beside the attention; else they are gathered.", RANKS,
        default=False)]


class OfRanks(OfShards, total=False):
    """Which rank of how many is counted, and how the model is spread over them."""

    mesh: Annotated[Mesh | str | Mapping[str, int] | None, Option(
        "Count one rank of a layout that need not exist: fsdp=128,tp=8. Axes: pp, replicate, fsdp (or dp), cp, ep, tp. The "
        "inputs are those of that rank.", RANKS, "AXIS=N,...", typed=str)]
    rank: Annotated[int, Option("The rank that is counted.", RANKS, "R", default=0)]
    reshard: Annotated[bool | None, Option(
        "Free gathered parameters of blocks after forward and gather them again, or keep them. Without either: kept in a "
        "pipeline alone.", RANKS, negative="--no-reshard")]
    schedule: Annotated[PipelineSchedule, Option(
        "In which order the ranks of a pipeline (pp) run microbatches forward and backward.", RANKS, default="1f1b")]
    microbatches: Annotated[int | None, Option(
        "Into how many microbatches a pipeline splits the batch. Without it: twice its ranks, or the nearest number that divides "
        "the batch.", RANKS, "N")]
    stages_per_rank: Annotated[int | None, Option(
        "Stages on each rank of a pipeline. Without it: 2 where the schedule takes several.", RANKS, "N")]


class Counting(Costing, OfRanks, total=False):
    """Options of `opcost.count`."""

    device: Annotated[str | None, Option(
        "GPU whose allocator and kernels decide memory: h200, a100 and others.", DEVICE, "NAME")]


class OfRun(TypedDict, total=False):
    """How a model runs on a device that is predicted, whatever its host is."""

    calibration: Annotated[File | None, Option(
        "File that opcost calibrate wrote on this device, instead of the shipped one.", DEVICE, "FILE", typed=Path)]
    execution: Annotated[Execution | None, Option(
        "Replayed as a CUDA graph (default on a GPU), eager with the host's time, or compiled with fused operators.",
        DEVICE)]


class OnDevice(OfRun, total=False):
    """How a model runs on a device that is predicted."""

    host: Annotated[File | None, Option(
        "File of opcost calibrate --host, made where the model runs: for eager execution, instead of the shipped host.", DEVICE,
        "FILE", typed=Path)]


class Advising(Costing, OnDevice, total=False):
    """Options of `opcost.advise`."""

    device: Annotated[str, Option("Device to predict for: h200, h100, a100 and others.", DEVICE, "NAME", default="h200")]


class Connecting(TypedDict, total=False):
    """What connects the ranks of a run, that is predicted or in a trace."""

    cluster: Annotated[Cluster | str | None, Option(
        "How ranks are connected: dgx-h100, dgx-h200, dgx-b200, dgx-a100, p4d, p5, mi300x, or a text such as "
        "'8 per node, nvlink 450GB/s, network 50GB/s per gpu', of each GPU in one direction.", RANKS, "NAME", typed=str)]


class InCluster(Connecting, total=False):
    """How the ranks of a predicted run are connected, and how each of them runs."""

    async_tp: Annotated[bool, Option(
        "With --sequence-parallel, gather and scatter piece by piece beside the products, as torchtitan's async tensor "
        "parallelism.", RANKS, default=False)]
    power: Annotated[str | int | None, Option(
        "What the device may draw in a long run, 500W: its clocks go with the cube root. Without it, of one rank of many, the "
        "limit in the table of devices.", DEVICE, "WATTS", typed=str)]
    compile_only: Annotated[str | Sequence[str], Option(
        "With --execution compiled, compile only modules whose path ends so, each by itself. May be repeated.", DEVICE,
        "PATTERN", default=(), typed=tuple[str, ...])]


class Predicting(Advising, OfRanks, InCluster, total=False):
    """Options of `opcost.predict`."""

    generate: Annotated[int | None, Option("After --prefill, generate N tokens one by one.", TEXT, metavar="N")]
    engine: Annotated[Engine, Option(
        "What runs the language model: transformers, or a serving engine with a paged cache and its own kernels.", TEXT,
        default="transformers")]


class Planning(OfStep, OfShards, OfRun, InCluster, total=False):
    """Options of `opcost.plan`."""

    gpus: Annotated[int | None, Option("How many GPUs train the model.", LAYOUT, "N")]
    device: Annotated[str, Option("The GPU: h200, h100, a100 and others.", LAYOUT, "NAME", default="h100")]
    global_batch: Annotated[int | None, Option("Samples of a step on all GPUs together, such as sequences.", LAYOUT, "N")]
    checkpoint: Annotated[str | Sequence[str], Option(
        "What may be recomputed in the backward pass: none, selective (blocks but for attention and every second product), "
        "full (blocks), several with commas, or all.", LAYOUT, "WHICH", default="all", typed=str)]
    fix: Annotated[str | Mapping[str, int] | None, Option(
        "Only layouts with these axes: tp=8, or tp=8,replicate=1.", LAYOUT, "AXIS=N,...", typed=str)]
    scheduler: Annotated[str | None, Option(
        "Count on a Dask cluster whose workers see the same files: the address of its scheduler, or local.", LAYOUT,
        "ADDRESS")]
    workers: Annotated[int | None, Option(
        "Processes that count. Without it, as many as there are processors and memory for.", LAYOUT, "N")]
    progress: Annotated[Callable[[Any, int, int], None] | None, _python(
        "Called with the plan so far, how many layouts are done, and of how many.")]


class Fitting(Costing, total=False):
    """Options of `opcost.fit`."""

    memory: Annotated[str | int | None, Option("Memory limit: 24GiB, 80GB.", SIZE, "SIZE", typed=str)]
    device: Annotated[str | None, Option(
        "GPU whose allocator decides memory, and its memory the limit unless --memory is given.", DEVICE, "NAME")]
    vary: Annotated[str, Option(
        "Size that grows, or is made to fit if it is given too (--batch 64): batch, tokens, image, prefill, decode, cache, or "
        "NAME=DIMENSION of an input (input_ids=1), several with commas.", SIZE, "SIZE", default="batch")]
    advise: Annotated[bool, Option(
        "Also try options that take less memory (default), or not.", SIZE, default=True, negative="--no-advise")]


class Sweeping(Costing, OnDevice, total=False):
    """Options of `opcost.sweep`."""

    vary: Annotated[Any, Option(
        "Size and its values: batch=1,2,4..256 continues as it began, tokens=128..8192 doubles, input_ids=1=10,20..100 adds "
        "10. Twice for two sizes.", SIZE, "SIZE=VALUES", typed=tuple[str, ...])]
    device: Annotated[str | None, Option(
        "Also predict the latency on this device, and its memory: h200, h100, ...", DEVICE, "NAME")]
    progress: Annotated[Callable[[Any, int], None] | None, _python(
        "Called with each counted point and the number of points.")]


class Profiling(OfModel, total=False):
    """Options of `opcost.profile`."""

    device: Annotated[str | None, Option("Move the model there first: cpu, cuda, cuda:1.", RUNNING, "NAME")]
    host_only: Annotated[bool, Option(
        "Record only the host, not the device.", RUNNING, default=False, flags=("--host-only", "--profile-host"))]
    warmup: Annotated[int, Option("Runs before the first timed one.", RUNNING, "N", default=3)]
    repeat: Annotated[int, Option(
        "Timed runs without the profiler, then recorded runs with it.", RUNNING, "N", default=10)]
    seconds: Annotated[float | None, Option("Run for this many seconds instead of --repeat times.", RUNNING, "S")]
    cold_l2: Annotated[bool, Option(
        "Flush the device's L2 cache before every run.", RUNNING, default=False, flags=("--cold-l2",))]


class Comparing(Counting, total=False):
    """Options of `opcost.compare`."""

    labels: Annotated[Sequence[str] | None, _python("Names of the columns, one for each source.")]
    by: Annotated[str | None, Option(
        "Also one row per kind of operator or per module; of profiles also operator, kernel, shape.", COUNTING, "KEY")]
    quantities: Annotated[Sequence[str], Option(
        "Quantities to compare, such as macs or params,flops.", COUNTING, "NAME", default=(), flags=("--quantity",),
        typed=tuple[str, ...])]
    depth: Annotated[int | None, Option("Modules down to this depth, or all.", COUNTING, "N|all", default=1, typed=str)]
    changes: Annotated[bool, Option(
        "Only what differs between two sources, with the differences.", COUNTING, default=False)]


class Checking(Costing, OnDevice, total=False):
    """Options of `opcost.check`; the other keywords are limits, by the names of the quantities."""

    device: Annotated[str | None, Option("Device of a limit on latency: h200, h100, a100 and others.", DEVICE, "NAME")]
    baseline: Annotated[File | None, Option(
        "Compare with what --save-baseline wrote, or with a saved report.", BUDGET, "FILE", typed=Path)]
    allow_uncounted: Annotated[bool, Option(
        "Pass although some operators have no cost model, so that counts are lower bounds.", BUDGET, default=False)]
    params: Annotated[str | int, _limit("params", "COUNT", "Limit on the parameters: 25.6M or 25,557,032.")]
    macs: Annotated[str | int, _limit("macs", "COUNT", "Limit on the multiply-accumulates: 4.2G.")]
    flops: Annotated[str | int, _limit("flops", "COUNT", "Limit on the floating-point operations.")]
    activations: Annotated[str | int, _limit("activations", "COUNT", "Limit on the elements that the forward pass writes.")]
    param_bytes: Annotated[str | int, _limit("param_bytes", "SIZE", "Limit on the bytes of the parameters: 512MiB or 1.5GB.")]
    activation_bytes: Annotated[str | int, _limit(
        "activation_bytes", "SIZE", "Limit on the bytes that the forward pass writes.")]
    bytes: Annotated[str | int, _limit("bytes", "SIZE", "Limit on the bytes that operators read and write.")]
    peak_bytes: Annotated[str | int, _limit("peak_bytes", "SIZE", "Limit on the peak memory.")]
    wire_bytes: Annotated[str | int, _limit("wire_bytes", "SIZE", "Limit on the bytes that a rank sends to others.")]
    latency: Annotated[str | int, _limit("latency", "TIME", "Limit on the predicted time of one pass on --device: 5ms.")]


CHOOSING = "Which operators"
ADDING = "Grouping and order"


class Querying(TypedDict, total=False):
    """Options of `opcost.query` and `Profile.query`; None is the same as leaving an option out."""

    type: Annotated[Any, Option("Only operators of this type. May be repeated.", CHOOSING, "T", typed=tuple[str, ...])]
    kind: Annotated[Any, Option("Only operators of this kind. May be repeated.", CHOOSING, "K", typed=tuple[str, ...])]
    module: Annotated[str | None, Option("Only operators of this module and those below it.", CHOOSING, "PATH")]
    name: Annotated[str | None, Option(
        "Only operators whose name starts with a match of this.", CHOOSING, "REGEX", flags=("--opr-name",))]
    input_dtype: Annotated[str | None, Option("Only operators with an input of this element type.", CHOOSING, "D")]
    min_time: Annotated[float | None, Option(
        "Shortest time of an operator: seconds, or with a unit, 1ms.", CHOOSING, "T", typed=str)]
    max_time: Annotated[float | None, Option("Longest time of an operator.", CHOOSING, "T", typed=str)]
    where: Annotated[str | None, Option(
        "Only operators that satisfy a condition: 'time > 1ms and kind == \"conv\"'.", CHOOSING, "CONDITION")]
    sort: Annotated[str | None, Option(
        "Column to sort by, largest first; +COL for smallest first. Missing values come last.", ADDING, "COL",
        default="time", flags=("--sort", "--order-by"))]
    top: Annotated[int | None, Option(
        "Show the first N lines; 0 shows all, -N all but the last N.", ADDING, "N", flags=("--top", "-t"))]
    aggregate_by: Annotated[Any, Option(
        "One line for all operators with the same type, name, module, kind, shape, dtype, kernel, provider, rank, device, "
        "stream, step or phase; several keys with commas.", ADDING, "KEY", flags=("--aggregate-by", "--by"),
        typed=tuple[str, ...])]
    aggregate: Annotated[str | None, Option(
        "sum (default), mean, max, min, median, or a percentile such as p90.", ADDING, "HOW")]
    group_by: Annotated[Any, Option(
        "One line per group, and below it the lines of the group.", ADDING, "KEY", typed=tuple[str, ...])]
    depth: Annotated[int | None, Option("Cut module paths to this many levels.", ADDING, "N")]
    percentiles: Annotated[Sequence[float] | None, Option(
        "Columns with percentiles of the time: 10,50,90.", ADDING, "P,...", typed=str)]
    side: Annotated[Side | None, Option(
        "Times of the device or of the host. Without it: of the device, if there is one.", ADDING)]
    measure: Annotated[Measure | None, _python(
        "The time that an operator took, or its wait from the start to the first kernel.", "time")]
    causal: Annotated[Causal | None, Option(
        "Count the full square of causal attention, or only the unmasked half.", COUNTING, default="full")]
    device: Annotated[Any, Option(
        "Compare rates with the peaks of this device: h200, a100 and others.", DEVICE, "NAME", typed=str)]


READING = "Reading"


class Reading(TypedDict, total=False):
    """Options of `opcost.read_profile`."""

    partial: Annotated[bool, Option("Read a damaged file up to the damage.", READING, default=False)]
    reader: Annotated[str | None, Option(
        "Format of the file where its content is ambiguous: kineto, mxnet, ...", READING, "NAME")]
    capture: Annotated[File | None, Option(
        "Trace of the run that captured the replayed CUDA graphs: their kernels get its operators.", READING, "FILE",
        typed=Path)]
    memory: Annotated[bool | None, _python("Read the memory of a large file too.")]
    timeline: Annotated[bool, _python("Read when things ran, of a large file too.", default=False)]
    executions: Annotated[bool, _python("One row for each execution, where the file is not large.", default=False)]


class TraceQuerying(Reading, Querying, total=False):
    """Options of `opcost.analyze`."""


SHOWING = "Output"


class Showing(TypedDict, total=False):
    """How a command shows its result; each command takes some of these."""

    view: Annotated[str, Option(
        "What is shown: table, arch, memory, badge, or a view of a plug-in.", SHOWING, "NAME", default="table")]
    format: Annotated[str | None, Option("table, text, md, latex, csv, json or html.", SHOWING, "NAME")]
    by: Annotated[str | None, Option(
        "One row per module, op, kind (of operator), type (of module) or collective.", SHOWING, "KEY")]
    depth: Annotated[str | None, Option(
        "Show modules down to this depth; deeper ones are added up. Without it, as deep as is readable.", SHOWING,
        "N|all")]
    merge: Annotated[bool | None, Option(
        "Show runs of identical blocks once, or never. Without either: where the tree would be long.", SHOWING,
        negative="--no-merge")]
    sort: Annotated[str | None, Option(
        "Column to sort by, largest first; +COLUMN for smallest first.", SHOWING, "COLUMN")]
    top: Annotated[int | None, Option("Show at most N rows.", SHOWING, "N")]
    columns: Annotated[str | None, Option("The columns to show, in this order.", SHOWING, "A,B,...")]
    exact: Annotated[bool, Option("All digits of numbers instead of K, M, G.", SHOWING, default=False)]
    width: Annotated[int | None, Option("Width in characters. Without it, that of the terminal.", SHOWING, "N")]
    output: Annotated[tuple[Path, ...], Option(
        "Write it to this file too; the suffix selects the format. May be repeated.", SHOWING, "FILE", default=(),
        flags=("--output", "-o"))]
    quiet: Annotated[bool, Option(
        "No progress; with -o, nothing on stdout either.", SHOWING, default=False, flags=("--quiet", "-q"))]
