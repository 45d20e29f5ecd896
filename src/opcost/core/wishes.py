"""What can be asked of a profile, and what each wish means: the keyword arguments of `opcost.query` and `Profile.query`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from opcost.core.devices import Device

Side: TypeAlias = Literal["device", "host"]
Measure: TypeAlias = Literal["time", "wait"]
Causal: TypeAlias = Literal["full", "half"]


class Wishes(TypedDict, total=False):
    """Every wish may be left out, and None is the same as leaving it out."""

    side: Side | None
    """Times of the device or of the host; of the device where the trace has any."""
    measure: Measure | None
    """What is asked about: the time that an operator took, or its wait from the beginning to the first kernel."""
    causal: Causal | None
    """Whether the whole square of a causal attention counts, as in a count unless it says otherwise, or the unmasked half."""
    where: str | None
    """A condition, such as `time > 1ms and kind == "conv"`."""
    type: str | Iterable[str] | None
    """Only operators of these types, in the framework's words; several in one text with commas."""
    kind: str | Iterable[str] | None
    """Only operators of these kinds, in opcost's words."""
    module: str | None
    """Only a module, and everything below it."""
    name: str | None
    """Only operators whose name begins with a match of this regular expression."""
    input_dtype: str | None
    """Only operators with an input of this element type."""
    min_time: float | None
    """Seconds that an operator takes at the least."""
    max_time: float | None
    """Seconds that it takes at the most."""
    group_by: str | Iterable[str] | None
    """One line per group, and below it the lines of the group."""
    aggregate_by: str | Iterable[str] | None
    """One line for all operators that are the same in these keys: type, name, module, kind, shape, kernel, rank, ..."""
    aggregate: str | None
    """How they become one line: sum (usual), mean, max, min, median, or a percentile such as p90."""
    depth: int | None
    """Levels that paths of modules are cut to."""
    percentiles: Sequence[float] | None
    """Percentiles of the time to be told for each line."""
    order_by: str | None
    """The column to sort by, the largest first; `+column` for the smallest first."""
    top: int | None
    """So many lines; 0 shows all, and a negative number all but the last ones."""
    device: str | Device | None
    """Compare rates with the peaks of this device: "h200", or one of your own."""
