"""What operators are called: by name in FBS v2, by the hash of a name in FBS v1.

A class name may end in a version and in `Forward`; both go, so that one rule serves all files. MegEngine hashes the name
with its version and a closing NUL byte, the oldest files without either.
"""

from __future__ import annotations

import re
from functools import cache

from opcost.frontends.megengine.params import FORMAT
from opcost.frontends.megengine.xxhash import xxh64

_SEED = 20160701
_VERSIONS = ("", *(f"V{number}" for number in range(10)))
_SUFFIX = re.compile(r"V\d$")

_REGISTERED: list[str] = FORMAT["operators"]
"""Class names under which MegEngine 1.13 stores operators."""


def plain(name: str) -> str:
    """An operator's name without version and without `Forward`."""
    return _SUFFIX.sub("", name).removesuffix("Forward")


def by_hash(number: int, *, versioned: bool) -> str:
    """The name behind an operator's id; an id that nobody knows stands for itself."""
    if not versioned:
        return _unversioned().get(number) or f"id{number:x}"
    return _current().get(number) or _other_versions().get(number) or f"id{number:x}"


@cache
def _current() -> dict[int, str]:
    return {xxh64(name.encode() + b"\0", _SEED): plain(name) for name in _REGISTERED}


@cache
def _other_versions() -> dict[int, str]:
    """The same operators as earlier or later versions of MegEngine would store them."""
    bare = {_SUFFIX.sub("", name) for name in _REGISTERED}
    return {xxh64(f"{name}{version}\0".encode(), _SEED): plain(name) for name in bare for version in _VERSIONS}


@cache
def _unversioned() -> dict[int, str]:
    bare = {_SUFFIX.sub("", name) for name in _REGISTERED}
    return {xxh64(name.encode(), _SEED): plain(name) for name in bare}
