"""A result as plain data in separate parts, and the digest of each part.

Everything that reads attributes of opcost's results is in this file, so that a renamed field is one line in RENAMED. Nothing that
depends on the machine enters: paths, versions and ids are removed, and floats are rounded to six significant digits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import io
import json
import logging
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
Parts: TypeAlias = dict[str, Any]
"""Part name to canonical data; `totals` is a flat dictionary that a person reads."""

RENAMED: dict[str, str] = {
    "costed_ns": "priced_ns", "uncosted": "unpriced", "uncosted_share": "unpriced_share", "waited_for": "held_up",
    "waited_for_ns": "held_up_ns",
}  # fmt: skip
"""New name of a field to the name under which it was frozen."""
REMOVED = frozenset({
    "schema", "id", "ids", "native", "version", "calibration", "trace_id", "same_as_id", "text", "file", "files", "how", "peak",
    "hint", "advice_text", "input_values", "output_values", "values", "rule", "source", "views", "execution", "facts", "what",
})  # fmt: skip
"""Fields without numbers: identities, versions, paths, and sentences, which may be reworded."""
WORDING = frozenset({"text", "page"})
"""Parts that a change of wording changes; all others are numbers."""
UNIT = r"(?:\s?(?:[KMGTP]i?B(?:/s)?|[KMGTPkmn]?(?:FLOPS?|FLOPs|MACs?|B)(?:/s)?|[KMGTP]|[nµum]?s|%)(?![A-Za-z]))?"
FIGURE = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?" + UNIT)
VERSION = re.compile(r"(?<![\d.x])\d+\.\d+\.\d+(?:[.+]?[a-z]\w*)*(?![\d.])")
MARKED_ROWS = 100
"""Sources with at most this many rows keep a mark of each row beside the digest."""


class Command(NamedTuple):
    """What the command line printed, and its exit code."""

    code: int
    out: str


class Printed(NamedTuple):
    """What a call of a peer printed and returned: here the full text is frozen."""

    out: str
    value: Any


class Unordered(NamedTuple):
    """A report whose rows are compared in any order: PyTorch's compiler orders the casts of autocast on a processor."""

    report: Any


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and log messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def command(*words: object) -> Command:
    """A command of opcost, run in this process through its public entry."""
    from opcost.cli.main import main

    out = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main([str(word) for word in words])
        except SystemExit as left:
            code = int(left.code or 0)
    if code not in (0, 1):
        raise RuntimeError(f"opcost {' '.join(map(str, words))}: exit code {code}: {err.getvalue().strip()[-300:]}")
    return Command(code, out.getvalue())


def printed(call: Callable[[], Any]) -> Printed:
    """A call with its standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        value = call()
    return Printed(out.getvalue(), value)


def scrubbed(text: str) -> str:
    """Without folders of this machine and versions of libraries."""
    text = re.sub(re.escape(tempfile.gettempdir()) + r"(/tmp\w{8})?", "TMP", text.replace(str(ROOT), "ROOT"))
    return VERSION.sub("VERSION", text)


def figures(text: str) -> list[str]:
    """The numbers of a text with their units, in order: what survives a change of the words around them."""
    text = text.replace("80 % interval", "")
    return [re.sub(r"\s", "", found) for found in FIGURE.findall(text)]


def rounded(number: float) -> Any:
    if not math.isfinite(number):
        return str(number)
    return int(number) if number == int(number) and abs(number) < 1e15 else float(f"{number:.6g}")


def plain(value: Any) -> Any:
    """Any value as JSON has them; mappings in order of their keys."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):  # a spec or a tensor
        shape = "?" if value.shape is None else "x".join("?" if each is None else str(each) for each in value.shape)
        return f"{shape}:{str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, Mapping):
        named = {RENAMED.get(str(key), str(key)): each for key, each in value.items()}
        return {key: plain(named[key]) for key in sorted(named) if key not in REMOVED}
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value), key=str)
    names = _fields(value)
    if names:
        return plain({name: getattr(value, name) for name in names if not name.startswith("_")})
    if hasattr(value, "item") and not hasattr(value, "__len__"):  # a scalar of NumPy
        return plain(value.item())
    try:
        return [plain(each) for each in value]
    except TypeError:
        return type(value).__name__


def _fields(value: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    names = getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
    return tuple(names) if names and not isinstance(value, type) else ()


def _notes(found: Any) -> list[Any]:
    """Codes and places of notes, without their wording."""
    return [[getattr(note, "code", ""), plain(getattr(note, "where", ""))] for note in found]


def _shown(result: Any, **options: Any) -> Parts:
    text = scrubbed(result.render("table", width=100, **options))
    return {"text": text, "figures": figures(text)}


def _saved(result: Any, suffix: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"result{suffix}"
        result.save(path)
        return path.read_text(encoding="utf-8")


def page_data(page: str) -> Any:
    """The data that a page for a browser carries."""
    found = re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)
    assert found, "the page has no block of data"
    return json.loads(found[1])


def _page(result: Any) -> Parts:
    data = json.loads(scrubbed(json.dumps(page_data(_saved(result, ".html")))))
    return {"page": data, "page_numbers": list(_numbers(data))}


def _numbers(data: Any) -> Iterator[Any]:
    if isinstance(data, Mapping):
        for key in sorted(data):
            yield from _numbers(data[key])
    elif isinstance(data, list):
        for each in data:
            yield from _numbers(each)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield rounded(data)


def report_parts(report: Any) -> Parts:
    """A count: rows, modules, parameters, memory and what was not counted."""
    rows = [
        {
            "op": row.op.raw, "kind": row.op.kind, "module": row.op.module, "phase": row.op.phase, "repeat": row.op.repeat,
            "attrs": plain(row.op.attrs), "ins": plain(row.ins), "outs": plain(row.outs), "cost": plain(row.cost),
            "activations": row.activations, "activation_bytes": row.activation_bytes,
        }
        for row in report.rows
    ]  # fmt: skip
    totals = {**plain(report.totals), "peak_bytes": report.peak_bytes}
    return {
        "totals": {name: amount for name, amount in totals.items() if amount},
        "rows": rows,
        "modules": plain(report.modules),
        "parameters": plain(report.parameters),
        "inputs": [plain(report.inputs), plain(report.outputs)],
        "phases": plain(report.phases),
        "memory": plain(report.memory),
        "coverage": plain(report.coverage),
        "notes": _notes(report.notes),
        **_shown(report),
        **_page(report),
    }


TIMES = "wall_ns latency_ns kernel_ns ideal_ns band_ns fits launches runs".split()


def profile_parts(profile: Any) -> Parts:
    """A trace, a measured profile or a prediction."""
    answer = profile.query()
    found = {name: plain(getattr(profile, name)) for name in TIMES if hasattr(profile, name)}
    found = {name: value for name, value in found.items() if value is not None and not isinstance(value, (list, str))}
    return {
        "totals": {
            **found, "rows": len(profile.rows), "device_ns": answer.device_ns, "host_ns": answer.host_ns,
            "unattributed": len(profile.unattributed),
        },
        "rows": plain(profile.rows),
        "unattributed": plain(profile.unattributed),
        "extra": plain(profile.extra),
        "answer": plain(answer.to_dict()),
        "memory": plain(getattr(profile, "memory", None)),
        "bounds": plain([getattr(profile, name, None) for name in ("bounds", "band_ns", "timed_ns")]),
        "notes": _notes(profile.notes),
        **_shown(answer),
        **_page(answer),
    }  # fmt: skip


def saved_parts(result: Any) -> Parts:
    """Any other result, as it saves itself."""
    data = plain(json.loads(_saved(result, ".json")))
    lists = {key: value for key, value in data.items() if isinstance(value, (list, dict)) and key != "notes"}
    rows = [{"part": key, "row": each} for key, value in lists.items() for each in _items(value)]
    return {
        "totals": {key: value for key, value in data.items() if isinstance(value, (int, float))},
        "rows": rows,
        "notes": _notes(getattr(result, "notes", ())),
        **_shown(result),
        **_page(result),
    }


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [[key, each] for key, each in value.items()]


def parts_of(result: Any) -> Parts:
    """The parts of whatever a source gives."""
    if isinstance(result, Unordered):
        parts = report_parts(result.report)
        del parts["page"], parts["page_numbers"]
        return {**parts, "rows": sorted(parts["rows"], key=canonical)}
    if isinstance(result, Printed):
        out = scrubbed(result.out)
        return {"totals": {"lines": out.count("\n")}, "printed": out, "returned": plain(result.value)}
    if isinstance(result, Command):
        out = scrubbed(result.out)
        return {"totals": {"code": result.code, "lines": out.count("\n")}, "text": out, "figures": figures(out)}
    if isinstance(result, str):
        out = scrubbed(result)
        return {"totals": {"lines": out.count("\n")}, "text": out, "figures": figures(out)}
    if hasattr(result, "coverage") and hasattr(result, "phases"):
        return report_parts(result)
    if hasattr(result, "unattributed") and hasattr(result, "query"):
        return profile_parts(result)
    if hasattr(result, "render") and hasattr(result, "save"):
        return saved_parts(result)
    return {"totals": {}, "returned": plain(result)}


def digest(data: Any) -> str:
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:12]


def canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def frozen(parts: Parts) -> dict[str, Any]:
    """What is committed of a source: its totals, a digest of each other part that is not empty, and marks of its rows."""
    found = {
        part: digest(data)
        for part, data in sorted(parts.items())
        if part != "totals" and data not in (None, [], {}, "")
    }
    record = {"totals": parts["totals"], **found}
    rows = parts.get("rows") or ()
    if 0 < len(rows) <= MARKED_ROWS:
        record["marks"] = "".join(digest(row)[:2] for row in rows)
    return record
