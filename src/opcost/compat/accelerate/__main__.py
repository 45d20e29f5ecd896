"""`python -m opcost.compat.accelerate MODEL [--dtypes ...]`, as `accelerate estimate-memory`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from opcost.compat.accelerate.estimate import DTYPES, estimate_command


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a model."""
    parser = argparse.ArgumentParser(prog="estimate-memory", description="How much memory a model takes.")
    parser.add_argument("model_name", help="timm:NAME, hf:config.json, path/to/net.py:Net")
    parser.add_argument("--library_name", choices=["timm", "transformers"], help="where a bare name is looked for")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--trust_remote_code", action="store_true", help="of no effect: nothing is fetched")
    told = parser.parse_args(arguments)
    if told.library_name == "timm" and ":" not in told.model_name:
        told.model_name = f"timm:{told.model_name}"
    estimate_command(told)


if __name__ == "__main__":
    main()
