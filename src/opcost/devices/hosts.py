"""The host whose times come with the package: that of the H200 whose models were measured (`benchmarks/h200_host.json`)."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

import msgspec


class TimedHost(msgspec.Struct, frozen=True):
    """A host that was calibrated beside a GPU: `opcost calibrate --host`, and the start of each operator on that GPU."""

    meta: Mapping[str, str]
    """Processor, versions, day."""
    host: Mapping[str, int]
    """Nanoseconds of each part, as in a calibration."""
    starts: Mapping[str, int]
    """Nanoseconds to start an operator, called again and again, by its name, by kind, and under the empty name any."""


@lru_cache
def shipped_host() -> TimedHost:
    """The host that comes with the package."""
    return msgspec.json.decode((files(__package__) / "h200.host.json").read_bytes(), type=TimedHost)


def described_host(meta: Mapping[str, str]) -> str:
    """Processor and versions in words."""
    versions = [
        f"{name.title() if name == 'python' else name} {meta[name]}" for name in ("python", "torch") if name in meta
    ]
    return ", ".join([meta.get("cpu", "an unknown processor"), *versions])
