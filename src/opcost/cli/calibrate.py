"""`opcost calibrate -o FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from opcost.cli.options import Quiet, parameter
from opcost.cli.saying import say
from opcost.core.progress import working
from opcost.predicting import calibrate as time_operators


def calibrate(
    *,
    output: Annotated[
        Path,
        parameter(
            name=["--output", "-o"], metavar="FILE", help="The .json to write; one that is there is gone on with."
        ),
    ],
    device: Annotated[
        str | None,
        parameter(metavar="NAME", help="Where operators run: cuda, cuda:1, cpu. Without it: the GPU, if any."),
    ] = None,
    name: Annotated[
        str | None, parameter(metavar="NAME", help="What the table of devices calls it, if its product does not tell.")
    ] = None,
    seconds: Annotated[
        float, parameter(metavar="S", show_default=True, help="How long to time operators, about.")
    ] = 170,
    quiet: Quiet = False,
) -> int:
    """Time single operators on the device at hand, for opcost predict."""
    done = (0, 0.0)

    def progress(timed: int, share: float) -> None:
        nonlocal done
        done = (timed, share)

    said = working(  # in seconds, of which timing one operator, which tells its own share, takes about one
        lambda: f"timing operators ({done[0]:,} so far)", share=lambda: (done[1] * seconds, seconds), quiet=quiet
    )
    with said:
        found = time_operators(output, device=device, name=name, seconds=seconds, progress=progress)
    if not quiet:
        say(f"timed    {len(found.rows):,} operators on {found.meta['product']}")
        say(f"written  {output}; use it with: opcost predict SOURCE --device {found.device} --calibration {output}")
    return 0
