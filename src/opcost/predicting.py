"""How long a model would take on a device that need not be present."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from opcost.core.devices import HOST, Device, autocasts_like
from opcost.core.devices import device as find_device
from opcost.core.graph import FLOPS_PER_MAC, Memory, Note
from opcost.core.interrupts import garbage_collector_paused
from opcost.core.option import filled, plain, takes
from opcost.core.report import Report
from opcost.core.units import format_bytes
from opcost.distributed.clusters import Cluster
from opcost.distributed.mesh import Mesh
from opcost.errors import InputError, UnknownName
from opcost.frontends.inputs import parse_precision
from opcost.frontends.source import SavedReport
from opcost.options import Engine, Execution, Predicting
from opcost.profiles import CacheCopies, Prediction, RankStep, TextTimes
from opcost.rules import default_rules

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from opcost.analysis.prediction.host import Host
    from opcost.analysis.prediction.network import Network
    from opcost.analysis.prediction.predict import Predicted
    from opcost.analysis.prediction.speeds import Speeds
    from opcost.devices.calibration import Laws


@takes(Predicting)
@garbage_collector_paused()
def predict(source: Any, inputs: Any = None, **options: Unpack[Predicting]) -> Prediction:
    """How long a model would take on a device, operator by operator, without running it.

    The model and its inputs are given as to `opcost.count`; a report that was counted before works as well. `device` is one of
    the table of devices; `calibration` is a file that `opcost calibrate` wrote on it, instead of the shipped one. A device that
    was never calibrated is predicted from its printed peaks and the shares of peak that a calibrated one reaches, with a wider
    interval.

    `execution="graph"` predicts one pass (or step) replayed as a CUDA graph, without the host's own time; "eager" includes it;
    "compiled" is a graph of the kernels that `torch.compile` makes. For a language model `prefill=1024` reads a prompt,
    `decode=1, cache=4096` generates one token, and `prefill=1024, generate=500` reads the prompt and generates 500 tokens:
    `.text` has the time to the first token, tokens per second and the size of the cache.

    `mesh=opcost.Mesh(fsdp=8), cluster="dgx-h100"` predicts one rank of many: `.step` has what it waits for, tokens per second and
    the use of the peak.
    """
    from opcost.analysis.prediction.fusion import compiled, memory_of_kernels
    from opcost.analysis.prediction.power import in_a_long_run, watts
    from opcost.analysis.prediction.predict import predict_report
    from opcost.api import check_saved, count_graph, load_report, on_device, resolve_source

    given = filled(Predicting, options)
    execution = given.execution
    if execution is not None and execution not in get_args(Execution):
        raise UnknownName("execution", execution, get_args(Execution))
    _check_ranks(given)
    speeds, described, calibrated = _speeds(given.device, given.calibration)
    on_host = speeds.device.name == HOST
    if on_host and execution == "graph":
        raise InputError("a processor replays no graphs", hint="leave execution out, or say eager or compiled")
    # The time of an operator on a processor is the host's own: nothing is added to it.
    run: Execution = "graph" if on_host and execution != "compiled" else execution or "graph"
    words = "one operator after another" if on_host and run == "graph" else _EXECUTIONS[run]
    meta = {"device": speeds.device.name, "calibration": described, "execution": words}
    how: dict[str, Any] = {"speeds": speeds, "meta": meta, "calibrated": calibrated, "execution": run}
    if run == "eager":
        how["host"], meta["host"] = _host(speeds, given.host)
    elif given.host is not None:
        raise InputError(
            "a host takes part in eager execution only", hint="add --execution eager, or leave the host out"
        )
    counting = {name: value for name, value in plain(options).items() if name not in _PREDICTING}
    counting |= {
        "inputs": inputs,
        "precision": parse_precision(given.precision, autocasts_like(given.device)),
        "device": None if given.device == HOST else given.device,
    }
    if given.engine not in get_args(Engine):
        raise UnknownName("engine", given.engine, get_args(Engine))
    if given.engine != "transformers":
        return _served(source, how, counting, given)
    if given.generate is not None:
        return _generated(source, how, counting, given)
    report, graph = source, None
    if not isinstance(source, Report):
        found = resolve_source(source, given.set)
        if isinstance(found, SavedReport):
            check_saved(found, {name: value for name, value in options.items() if name not in _PREDICTING})
            report = load_report(found.path)
        else:
            counting.pop("set", None)
            report, graph = count_graph(source if found is None else found, **counting)
    network = _network(report, given)
    if network is not None:
        meta["cluster"] = network.cluster.name
    if network is not None or given.power is not None:
        power = None if given.power is None else watts(str(given.power))
        how["longer"] = in_a_long_run(speeds.device, power)
        limit = power or speeds.device.power
        meta |= {} if limit is None else {"power": f"{limit} W"}
    memory = report.memory
    if run == "compiled":
        how["kernels"] = kernels = compiled(report, _patterns(given.compile_only))
        if graph is not None and not on_host and "backward" in report.phases:
            on = on_device(speeds.device.name, expandable=given.expandable_segments)
            memory = memory_of_kernels(kernels, graph, report, on)
    predicted = predict_report(report, **how, network=network)
    text = None
    if "text" in report.meta:  # one pass of a language model
        batch, new, latency = int(report.meta["batch"]), int(report.meta["text_tokens"]), predicted.latency_ns
        reads = report.meta["text"].startswith("prefill")
        first, token = (latency, None) if reads else (None, latency // new)
        text = _times(predicted, report, batch, new, first, token)
    prediction = _with_memory(predicted, memory, text)
    return prediction if network is None else _of_rank(prediction, predicted, report, network, speeds.device)


_PREDICTING = (
    "device",
    "calibration",
    "execution",
    "host",
    "generate",
    "engine",
    "cluster",
    "compile_only",
    "power",
    "async_tp",
)  # not for counting, or in another sense


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_ranks(given: Any) -> None:
    """Raise for what is not predicted of one rank of many."""
    if given.mesh is not None and given.cluster is None:
        raise InputError("a mesh is given, and no cluster that connects its ranks", hint="cluster='dgx-h100'")
    if given.cluster is None:
        if given.async_tp:
            raise InputError("async_tp is given, and no cluster that connects ranks", hint="cluster='dgx-h100'")
        return
    if given.mesh is not None and Mesh.of(given.mesh).pp > 1 and given.execution not in (None, "graph"):
        raise InputError(f"a pipeline is not predicted with {given.execution} execution", hint="leave execution out")
    if given.generate is not None or given.engine != "transformers":
        raise InputError("one rank of many is predicted for a single pass or step", hint="leave the cluster out")


def _network(report: Report, given: Any) -> Network | None:
    """What connects the rank that was counted with others."""
    from opcost.analysis.prediction.network import Network

    if given.cluster is None:
        return None
    if report.stages and not report.pipeline:
        raise InputError(
            "a saved report has one rank of a pipeline, not in the order of its step", hint="give the model"
        )
    if "mesh" not in report.meta and not report.collectives:
        raise InputError("a cluster is given, and the model runs on one rank", hint="mesh='fsdp=8'")
    found = Network.of(report, Cluster.of(given.cluster), "tp" if given.async_tp else "")
    sent = {(row.op.attrs.get("axis"), row.op.attrs.get("fn")) for row in report.rows}
    if given.async_tp and ("tp", "reduce_scatter") not in sent:
        fault = "async tensor parallelism gathers and scatters parts of the sequence, which are not split over ranks"
        raise InputError(fault, hint="mesh='fsdp=4,tp=8', sequence_parallel=True")
    return found


def _of_rank(prediction: Prediction, found: Predicted, report: Report, network: Network, device: Device) -> Prediction:
    """The prediction with how fast its rank is, and when it computes and sends."""
    from opcost.analysis.join import step_flops, tokens_of
    from opcost.analysis.prediction.network import lanes

    if found.timeline is None:
        return prediction
    seconds = max(1, found.latency_ns) / 1e9
    tokens = mfu = hfu = None
    stages = report.pipeline or (report,)
    with suppress(InputError):  # it reads no tokens
        tokens = tokens_of(report) / seconds / network.ranks_per_batch
    with suppress(InputError):  # it multiplies nothing, or there is no peak for that
        executed = [step_flops(each, device) for each in stages]
        hfu = sum(each.used(seconds) for each in executed) / len(stages)
        if all(parameter.trainable or parameter.buffer for each in stages for parameter in each.parameters):
            rows = (row for each in stages for row in each.rows if row.op.phase == "forward" and row.cost is not None)
            forward = sum(FLOPS_PER_MAC * row.cost.macs * row.op.repeat for row in rows if row.cost is not None)
            passes = 3 if "backward" in report.phases else 1
            mfu = executed[0]._replace(flops=passes * forward // len(stages)).used(seconds)
    waited, slowing = found.timeline.exposed_ns(), found.timeline.slowing_ns()
    bubble = found.bounds.get("bubble", 0)
    later = sum((*waited.values(), *slowing.values())) + found.bounds["host"] + bubble
    step = RankStep(
        cluster=network.cluster.name, compute_ns=found.latency_ns - later, bubble_ns=bubble, exposed_ns=waited,
        slowing_ns=slowing, sending_ns=found.timeline.taken_ns(), tokens_per_second=tokens, mfu=mfu, hfu=hfu,
    )  # fmt: skip
    extra = {} if report.pipeline else {"timeline": lanes(found.timeline, prediction.rows)}
    return replace(prediction, step=step, extra=extra)


def _generated(source: Any, how: dict[str, Any], counting: dict[str, Any], given: Any) -> Prediction:
    """A prompt that is read, and tokens that are generated after it one by one."""
    from opcost.analysis.prediction.lengths import pieces
    from opcost.analysis.prediction.predict import joined, predict_report, predict_steps
    from opcost.api import count, made_once
    from opcost.frontends.torch.models.text import windows

    prefill, generate = given.prefill, given.generate
    if prefill is None or given.decode is not None or not isinstance(generate, int) or generate < 1:
        hint = "give both numbers, above zero: prefill=1024, generate=500"
        raise InputError("generate produces a number of tokens after a prompt", hint=hint)
    if given.shapes is not None:
        raise InputError("generate makes its own inputs", hint="leave the shapes out; batch is the number of sequences")
    chosen = {name: value for name, value in counting.items() if name not in ("set", "prefill", "cache")}
    with made_once(source, given.set) as (model, usual):
        chosen["mode"] = given.mode or usual
        first = count(model, prefill=prefill, **chosen)
        steps = generate - 1
        parts = [predict_report(first, **how)]
        last = first
        if steps:

            def step(cached: int) -> Report:
                return count(model, decode=1, cache=cached, **chosen)

            found = pieces(step, prefill, prefill + steps - 1, windows(model))
            parts.append(predict_steps(found, **how))
            last = found[-1].high
    whole = joined(parts)
    text = f"{first.meta['text']}, then {generate} tokens written"
    written = {
        **whole.profile.meta,
        **{name: last.meta[name] for name in last.meta if name.startswith("cache")},
        "text": text,
        "subject": replace(first, meta={**first.meta, "text": text}).subject,
    }
    whole = whole._replace(profile=replace(whole.profile, meta=written))
    token = parts[1].latency_ns // steps if steps else None
    times = _times(whole, last, int(first.meta["batch"]), generate, parts[0].latency_ns, token)
    memory = max(first.known_memory(), last.known_memory(), key=lambda memory: memory.peak_bytes)
    return _with_memory(whole, memory, times)


def _served(source: Any, how: dict[str, Any], counting: dict[str, Any], given: Any) -> Prediction:
    """A batch of texts that begin together in a serving engine: prompts are read, tokens are generated, or both."""
    from opcost.analysis.prediction import serving
    from opcost.analysis.prediction.lengths import pieces
    from opcost.analysis.prediction.predict import joined, predict_report, predict_steps
    from opcost.api import count, made_once
    from opcost.frontends.torch.models.text import windows

    prefill, generate, batch = given.prefill, given.generate, given.batch or 1
    device = find_device(given.device) if given.device != HOST else None
    if device is None or given.execution not in (None, "graph"):
        raise InputError("an engine runs on a GPU, with CUDA graphs", hint="leave execution out, or the engine")
    if given.backward or given.optimizer or given.static:
        raise InputError("an engine generates text, with a cache of its own", hint="leave the other options out")
    if (prefill is None) == (given.decode is None) or (generate is not None and (prefill is None or generate < 1)):
        hint = "say what it does: prefill=1024, generate=500, or decode=1, cache=1024"
        raise InputError("an engine reads prompts and generates tokens after them", hint=hint)
    chosen = {
        name: value for name, value in counting.items() if name not in ("set", "prefill", "decode", "cache", "batch")
    }
    with made_once(source, given.set) as (model, usual):
        chosen["mode"] = given.mode or usual

        def step(cached: int, new: int = 1) -> Report:
            return serving.served(count(model, decode=new, cache=cached, batch=batch, **chosen))

        if prefill is None:
            reports = [step(given.cache, given.decode)]
            text, tokens = reports[0].meta["text"], given.decode
            parts = [predict_report(reports[0], **how)]
            reading, token = None, parts[0].latency_ns // given.decode
        else:
            groups = serving.in_steps(batch, prefill, serving.limits(device).tokens)
            reports = [serving.served(count(model, prefill=prefill, batch=size, **chosen)) for size, _ in groups]
            text, tokens = reports[0].meta["text"], prefill
            repeats = zip(reports, groups, strict=True)
            parts = [predict_report(serving.repeated(report, times), **how) for report, (_, times) in repeats]
            reading, token = sum(part.latency_ns for part in parts), None
        if generate is not None:
            text, tokens = f"{text}, then {generate} tokens written", generate
        if generate is not None and generate > 1:
            found = pieces(step, prefill, prefill + generate - 2, windows(model))
            reports.append(found[-1].high)
            parts.append(predict_steps(found, **how))
            token = parts[-1].latency_ns // (generate - 1)
    whole, last = serving.unsure(joined(parts)), reports[-1]
    names = {"text": text, "batch": str(batch), "execution": serving.SERVED}
    subject = replace(reports[0], meta={**reports[0].meta, **names}).subject
    memory = serving.room(last, device)
    notes = (*whole.profile.notes, *serving.assumptions(device, batch, prefill, memory))
    times = _times(whole, last, batch, tokens, reading, token)
    sizes = {name: str(getattr(times, name)) for name in last.meta if name.startswith("cache_")}
    written = {**whole.profile.meta, **names, **sizes, "subject": f"{subject}, {serving.ENGINES[given.engine]}"}
    whole = whole._replace(profile=replace(whole.profile, meta=written, notes=notes))
    if memory is None:
        return _with_memory(whole, None, times)
    times = replace(times, largest_batch=memory.largest_batch)
    return _with_memory(whole, memory.used(batch, device), times, memory.limit)


def _times(
    found: Predicted, last: Report, batch: int, tokens: int, first_token_ns: int | None, token_ns: int | None
) -> TextTimes:
    """Times of a text, with the cache as the `last` pass leaves it."""
    size = int(last.meta["batch"])  # an engine may read some of the prompts at a time
    cache: Any = {name: int(last.meta[name]) * batch // size for name in ("cache_bytes", "cache_bytes_per_token")}
    cache["cache_tokens"] = int(last.meta["cache_tokens"])
    cache["copies"] = CacheCopies.of(found.profile.rows)
    rate = batch * tokens / max(1, found.latency_ns) * 1e9
    return TextTimes(batch=batch, first_token_ns=first_token_ns, token_ns=token_ns, tokens_per_second=rate, **cache)


def _with_memory(
    found: Predicted, memory: Memory | None, text: TextTimes | None, usable: int | None = None
) -> Prediction:
    """The prediction with its memory, of which as much as is `usable` may be taken, or all that tensors may get."""
    from opcost.devices.allocator import fits

    profile = {field.name: getattr(found.profile, field.name) for field in fields(found.profile)}
    if found.profile.meta["device"] == HOST:  # its time is the host's, as in a measured profile
        profile["rows"] = tuple(
            row._replace(host_ns=row.device_ns, host_self_ns=row.device_ns, device_ns=None, device_total_ns=None)
            for row in found.profile.rows
        )
    sums = {name: value for name, value in found._asdict().items() if name not in ("profile", "timeline")}
    name = found.profile.meta["device"]
    usable = usable or (None if name == HOST else find_device(name).usable)
    enough = None if memory is None or usable is None else fits(memory, usable)
    if memory is not None and usable is not None and not enough:
        needed = f"{_memory_words(memory)}, and {format_bytes(usable)} of {name} are usable"
        missing = f"does not fit on {name}: {needed}; times are those with enough memory"
        profile["notes"] = (*profile["notes"], Note("does-not-fit", missing))
    return Prediction(**profile, **sums, memory=memory, text=text, fits=enough)


def _memory_words(memory: Memory) -> str:
    text = f"peak {format_bytes(memory.peak_bytes)}, of which {format_bytes(memory.base_bytes)} before"
    return text if memory.reserved_bytes is None else f"{text}; {format_bytes(memory.reserved_bytes)} reserved"


_EXECUTIONS = {
    "graph": "as one CUDA graph, without waiting for the host",
    "eager": "eager: each operator launched by the host",
    "compiled": "compiled: one graph of the kernels that torch.compile makes",
}
FEWEST = 100  # operators that a calibration needs: with fewer, whole families are missing


def _speeds(name: str, path: str | PathLike[str] | None) -> tuple[Speeds, str, bool]:
    """The speeds of a device, a description of their origin, and whether this very device was calibrated."""
    from opcost.analysis.prediction.speeds import shipped_speeds
    from opcost.devices.calibration import SHIPPED, shipped

    device = None if name == HOST else find_device(name)
    if path is not None:
        file = Path(path)
        changed = file.stat().st_mtime_ns if file.is_file() else time.monotonic_ns()  # a pipe is another each time
        return _calibrated(name, file, changed)
    if device is None:
        hint = "opcost calibrate --device cpu -o FILE, then opcost predict SOURCE --device cpu --calibration FILE"
        raise InputError("no calibration of a CPU is shipped: processors differ too much", hint=hint)
    if not device.flops:
        hint = "the table of devices in docs/options.md has those with rates"
        raise InputError(
            f"{device.name} cannot be predicted: its maker publishes its bandwidth and no rates", hint=hint
        )
    calibrated = device.name in SHIPPED
    laws = shipped(device.name if calibrated else SHIPPED[0])
    described = _described(laws)
    if not calibrated:
        described = f"none of {device.name}; shares of the peaks as of {described}"
    return shipped_speeds(device.name), described, calibrated


@lru_cache(maxsize=4)
def _calibrated(name: str, path: Path, _changed: int) -> tuple[Speeds, str, bool]:
    """The speeds of a device by a file, fitted once while the file stays as it is: a sweep predicts many sizes."""
    from opcost.analysis.prediction.speeds import Speeds, fit_laws
    from opcost.devices.calibration import DOCUMENT, refuse_busy

    device = None if name == HOST else find_device(name)
    calibration = DOCUMENT.load(path)
    if calibration.device != (device.name if device else HOST):
        hint = f"say --device {calibration.device}, or calibrate on the other device"
        raise InputError(f"the calibration {str(path)!r} is of {calibration.device!r}, not of {name!r}", hint=hint)
    refuse_busy(calibration, path)
    if len(calibration.rows) < FEWEST:
        raise InputError(
            f"the calibration {str(path)!r} has {len(calibration.rows)} operators, and {FEWEST} are needed",
            hint=f"continue it: opcost calibrate -o {path}",
        )
    fitted = fit_laws(calibration, default_rules())
    return Speeds(fitted, device), _described(fitted), True


def _host(speeds: Speeds, path: str | PathLike[str] | None) -> tuple[Host, str]:
    """The host that runs a model eagerly, and its description: of a file, else of the calibration, else the shipped one."""
    from opcost.analysis.prediction.host import CALIBRATED, ELSEWHERE, Host
    from opcost.devices.calibration import DOCUMENT, refuse_busy
    from opcost.devices.hosts import described_host, shipped_host

    shipped = shipped_host()
    starts, beside = (speeds.starts, speeds.beside) if speeds.beside else (shipped.starts, shipped.host)
    if path is not None:
        found = DOCUMENT.load(path)
        refuse_busy(found, path)
        if not found.host:
            hint = "make one: opcost calibrate --host -o FILE"
            raise InputError(f"the calibration {str(path)!r} has no times of a host", hint=hint)
        return Host(starts, beside, found.host, spread=CALIBRATED), described_host(found.meta)
    if speeds.beside:
        return Host(starts, beside, beside, spread=CALIBRATED), "of the calibration"
    text = f"shipped: {described_host(shipped.meta)}"
    return Host(starts, beside, beside, spread=ELSEWHERE), text


def _described(laws: Laws) -> str:
    torch = f", torch {laws.meta['torch']}" if "torch" in laws.meta else ""
    made = laws.meta.get("made", "")
    return f"{laws.meta.get('product', laws.home.name)}, {laws.operators:,} operators, {made}{torch}"
