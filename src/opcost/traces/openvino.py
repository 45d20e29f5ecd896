"""Performance counters of OpenVINO's benchmark_app: `-report_type average_counters|detailed_counters`, and what `-pc` prints."""

import csv
import io
import re
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

from opcost.core.graph import Note
from opcost.core.profile import Profile, ProfileRow
from opcost.errors import SourceError
from opcost.traces.file import NS_PER_MS, TraceFile, nanoseconds
from opcost.traces.registry import Reader

HEADER = b"layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)"
_JSON = re.compile(rb'"report_type"\s*:\s*"(average|detailed)"')
_PRINTED = re.compile(
    r"^(?P<name>.*\S)\s+(?P<status>(?:Status\.)?[A-Z_]+)\s+layerType: (?P<type>\S+)\s+execType: (?P<exec>\S+)\s+"
    r"realTime \(ms\): (?P<real>\S+)\s+cpuTime \(ms\): (?P<cpu>\S+)\s*$",
    re.MULTILINE,
)
"""A layer as it is printed; long names are cut."""
_PRINTED_MARK = re.compile(rb"\slayerType: \S+\s+execType: \S+\s+realTime \(ms\): ")
_SUMMARY = re.compile(rb'Command line parameters\s|\{\s*"cmd_options"\s*:')


class OpenVinoReader:
    """One row for each layer and inference request; a layer that was fused away (NOT_RUN) is a row without time."""

    name = "openvino"

    def sniff(self, head: bytes) -> bool:
        head = head.lstrip(b"\xef\xbb\xbf \r\n")
        is_json = head[:1] == b"{" and _JSON.search(head[:4096]) is not None
        return head.startswith(HEADER) or is_json or _SUMMARY.match(head) is not None or _is_printed(head)

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        head = file.head.lstrip(b"\xef\xbb\xbf \r\n")
        if _SUMMARY.match(head):
            hint = "the layers are in the file *_counters_report beside it: -report_type average_counters"
            raise SourceError(f"{file.path} is a summary of OpenVINO's benchmark_app, without layers", hint=hint)
        if head.startswith(HEADER):
            layers, note = _csv(file, partial=partial)
        else:
            layers, note = _printed(file) if _is_printed(head) else _json(file)
        rows = []
        for number, (request, (name, status, layer_type, execution, real, cpu)) in enumerate(layers):
            status = status.removeprefix("Status.")  # noqa: PLW2901 - a word of Python's interface
            spent = _ns(file, name, real) if status == "EXECUTED" else None
            rows.append(
                ProfileRow(
                    id=number, name=name, type=layer_type, kind=openvino_kind(layer_type), provider=execution,
                    device="cpu", step=request, host_ns=spent, host_self_ns=spent, count=int(spent is not None),
                    attrs={"status": status, "cpu_ns": _ns(file, name, cpu)},
                )
            )  # fmt: skip
        return Profile(meta={"source": file.name, "format": "openvino"}, rows=tuple(rows), notes=note)


READER: Reader = OpenVinoReader()


_Layers: TypeAlias = "tuple[list[tuple[int, list[str]]], tuple[Note, ...]]"
"""Request and the six fields of every layer, and what is missing."""


def _csv(file: TraceFile, *, partial: bool) -> _Layers:
    """A table of several requests repeats the heading."""
    layers: list[tuple[int, list[str]]] = []
    request = -1
    for number, fields in enumerate(csv.reader(io.StringIO(file.text()), delimiter=";"), 1):
        if fields[:1] == ["layerName"]:
            request += 1
        elif fields[:1] == ["Total"] or not any(fields):
            continue
        elif len(fields) == 6:
            layers.append((request, fields))
        elif partial:
            return layers, (Note("partial", f"line {number} is damaged; this is what is before it"),)
        else:
            found = f"{len(fields)} fields where a layer has 6: {';'.join(fields)[:60]!r}"
            raise SourceError(f"{file.path}, line {number}: {found}")
    return layers, ()


def _is_printed(head: bytes) -> bool:
    return head[:1] != b"{" and _PRINTED_MARK.search(head) is not None


def _printed(file: TraceFile) -> _Layers:
    """The total ends the table of a request."""
    layers: list[tuple[int, list[str]]] = []
    request = 0
    for line in file.text().splitlines():
        if (found := _PRINTED.match(line)) is not None:
            layers.append((request, [*found.groups()]))
        elif line.startswith("Total time:") and layers:
            request += 1
    cut = "benchmark_app cuts long names when it prints them; its CSV report has them whole"
    return layers, (Note("incomplete", cut),)


def _json(file: TraceFile) -> _Layers:
    content = file.json()
    requests = content.get("detailed_performance")
    note: tuple[Note, ...] = ()
    if requests is None:
        requests = [content.get("avg_performance")]
        only = "benchmark_app writes only the first layer into this file; its CSV report has all of them"
        note = (Note("incomplete", only),)
    keys = ("name", "status", "node_type", "exec_type", "real_time", "cpu_time")
    layers: list[tuple[int, list[str]]] = []
    try:
        for request, counters in enumerate(requests):
            layers += [(request, [node[key] for key in keys]) for node in counters["nodes"]]
    except (KeyError, TypeError) as exc:
        raise SourceError(f"{file.path} looks like OpenVINO's counters but is damaged: {exc!r}") from exc
    if faulty := [field for _, fields in layers for field in fields if not isinstance(field, str)]:
        raise SourceError(f"{file.path} looks like OpenVINO's counters but is damaged: {faulty[0]!r} is not text")
    return layers, note


def _ns(file: TraceFile, name: str, milliseconds: str) -> int:
    try:
        return nanoseconds(Decimal(milliseconds), NS_PER_MS)
    except (InvalidOperation, ValueError):
        time = f"the time {milliseconds[:40]!r}, which is not a number"
        raise SourceError(f"{file.path}: the layer {name!r} has {time}") from None


# -- kinds of layers

_NAMES = {
    "conv": "convolution deconvolution convolutionbackpropdata groupconvolution groupconvolutionbackpropdata "
    "binaryconvolution deformableconvolution",
    "matmul": "fullyconnected matmul",
    "attention": "scaleddotproductattention scaleddotproductattentionwithkvcache",
    "recurrent": "lstmcell lstmsequence grucell grusequence rnncell rnnsequence",
    "norm": "batchnorminference lrn mvn normalizel2 rms",
    "softmax": "softmax logsoftmax",
    "pool": "pooling maxpool avgpool adaptiveavgpool adaptivemaxpool",
    "elementwise": "relu sigmoid tanh gelu swish hswish mish elu prelu clamp exp log sqrt power erf add subtract multiply "
    "divide eltwise negative abs",
    "reduce": "reducemean reducesum reducemax reducemin reduceprod",
    "resize": "interpolate",
    "sort": "topk",
    "gather": "gather gathernd",
    "copy": "concat concatenation split slice stridedslice transpose permute reorder pad tile broadcast convert copy",
    "view": "reshape squeeze unsqueeze",
    "quantize": "fakequantize",
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def openvino_kind(layer_type: str) -> str:
    """The kind; empty for a type that is not known."""
    return KINDS.get(layer_type.lower(), "")
