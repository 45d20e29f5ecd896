"""Traces of PyTorch's profiler (Kineto, `export_chrome_trace`), of all versions.

How a file becomes a profile, and so where to look when a number is wrong:

1. `stream` reads the file block by block and leaves bad events out; `decoding` declares which fields of which categories are
   decoded. A missing event: is its category in `decoding.CATEGORIES`?
2. `columns` sorts events into arrays of numbers, one `Lane` per thread and kind, and numbers distinct calls (`Signature`: name
   and arguments as the trace spells them). A wrong time or identifier: `Columns.add`.
3. `link` nests the calls of each thread by time and gives every kernel the operator around its launch. A kernel under the wrong
   operator: `_Linker._link_launches`. The result is a `trace.Trace`: all columns, with named accessors.
4. `modules` finds the module, the phase (forward, backward, recompute, update) and the step of each row.
5. `operators` turns a signature into kind, tensors and attributes through the table of `frontends.aten`, so that the rules give
   the same cost as in a count. A wrong or missing cost: call `traced_operator` with the row's signature. `nested_costs`
   then decides which of nested operators have the cost, so that none counts twice.
6. `trace.Trace.executions` makes a row of every execution, `table` one of all that are alike (large traces); `device_use` and
   `memory_use` describe the devices, and `reader` puts the profile together.
"""

from opcost.traces.kineto.reader import READER, read_table

__all__ = ["READER", "read_table"]
