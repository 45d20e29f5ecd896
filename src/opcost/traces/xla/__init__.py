"""Traces of JAX and everything else that runs on XLA (`jax.profiler.trace`): `*.xplane.pb` and `*.trace.json.gz`.

`planes` and `chart` read the two forms into the same `Executed`; `hlo` reads the compiled programs that the first one holds,
which tell shapes and work; `reader` makes rows of both.
"""

from opcost.traces.xla.reader import READER

__all__ = ["READER"]
