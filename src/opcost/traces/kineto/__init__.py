"""Traces of PyTorch's profiler (Kineto, `export_chrome_trace`), of all vintages.

A file passes through these in order: `stream` reads it block by block (`window`, `cuts`) and has it decoded (`decoding`, into
what `event` declares), `columns` keeps numbers of it in a `lane` for each thread, `link` ties them together by time
(`modules`, `training`, `launches`), `rows` says what they mean, with the words of `arguments` and `meaning`; `reader` and
`table` hand it out.
"""

from opcost.traces.kineto.reader import READER

__all__ = ["READER"]
