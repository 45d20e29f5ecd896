"""Write docs/options.md from opcost/options.py and the table of devices: python docs/generate_options.py."""
# ruff: noqa: INP001 (a script, not a package)

from __future__ import annotations

from pathlib import Path

from opcost import options
from opcost.core.devices import DEVICES, GIGA, TERA, Device
from opcost.core.option import declared

PAGE = Path(__file__).with_name("options.md")
VERBS = {
    "count": options.Counting, "predict": options.Predicting, "advise": options.Advising, "fit": options.Fitting,
    "sweep": options.Sweeping, "plan": options.Planning, "profile": options.Profiling, "compare": options.Comparing,
    "check": options.Checking, "query": options.Querying, "read_profile": options.Reading,
}  # fmt: skip
INTRODUCTION = """\
# Options

This page is generated from `opcost/options.py` and `opcost/core/devices.json` (`python docs/generate_options.py`); a test
compares them. An option has the same name as a keyword argument in Python, as a flag (with hyphens) and as a key of a
[budget file](budgets.md), and the same meaning for every function and command that takes it. [Devices](#devices) are below.

| keyword | flag | meaning | of |
|---|---|---|---|
"""
DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "int8")
PEAKS = f"""
## Devices

Names for `--device`, with published dense peaks: TFLOP/s by element type, memory in GB/s. A source is the maker's document,
linked there or at a page that repeats its figures. "Halved" marks documents that print matrix rates with sparsity. No
published figure was found for an empty cell: rates of that type have no percentage, and are predicted as float32, or else as the
slowest type.

| device | {" | ".join(DTYPES)} | memory | source |
|---|{"---:|" * (len(DTYPES) + 1)}---|
"""


def render() -> str:
    """The whole page."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for verb, kind in VERBS.items():
        for name, (_, option) in declared(kind).items():
            flags = option.flags or (f"--{name.replace('_', '-')}",)
            typed = [*flags, option.negative] if option.negative else flags
            flag = "" if option.python_only else ", ".join(f"`{each}`" for each in typed)
            meaning = f"{option.help} Default: {option.default}." if option.shows_default else option.help
            rows.setdefault((name, flag, meaning), []).append(verb)
    lines = [f"| `{name}` | {flag} | {meaning} | {', '.join(verbs)} |" for (name, flag, meaning), verbs in rows.items()]
    options_table = "\n".join(line.replace("N|all", "N") for line in lines)
    return f"{INTRODUCTION}{options_table}\n{PEAKS}{''.join(map(_device_row, DEVICES.values()))}"


def _device_row(device: Device) -> str:
    rates = [f"{device.flops[dtype] / TERA:g}" if dtype in device.flops else "" for dtype in DTYPES]
    source = f"[{device.source}{', halved' if device.halved else ''}]({device.url})"
    return f"| {' | '.join((device.name, *rates, f'{device.bandwidth / GIGA:g}', source))} |\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
