"""`python -m opcost.compat.accelerate MODEL [--dtypes ...]`, as `accelerate estimate-memory`."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.compat.accelerate.estimate import estimate_command, estimate_command_parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a model."""
    estimate_command(estimate_command_parser().parse_args(arguments))


if __name__ == "__main__":
    main()
