"""Write docs/options.md from the declarations in opcost/options.py: python docs/generate_options.py."""
# ruff: noqa: INP001 (a script, not a package)

from __future__ import annotations

from pathlib import Path

from opcost import options
from opcost.core.option import declared

PAGE = Path(__file__).with_name("options.md")
VERBS = {
    "count": options.Counting, "predict": options.Predicting, "fit": options.Fitting, "sweep": options.Sweeping,
    "profile": options.Profiling, "compare": options.Comparing, "check": options.Checking, "query": options.Querying,
    "read_profile": options.Reading,
}  # fmt: skip
INTRODUCTION = """\
# Options

This page is generated from `opcost/options.py` (`python docs/generate_options.py`); a test compares the two. An option has the
same name as a keyword argument in Python, as a flag (with hyphens) and as a key of a [budget file](budgets.md), and the same
meaning for every function and command that takes it.

| keyword | flag | meaning | of |
|---|---|---|---|
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
    return INTRODUCTION + "\n".join(line.replace("N|all", "N") for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
