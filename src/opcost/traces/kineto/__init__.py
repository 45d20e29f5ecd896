"""Traces of PyTorch's profiler (Kineto, `export_chrome_trace`), of all vintages.

A file passes through these in order: `stream` decodes it block by block, `columns` keeps numbers of it, `link` ties them
together by time, `rows` says what they mean, with the words of `arguments` and `meaning`; `reader` and `table` hand it out.
"""

from opcost.traces.kineto.reader import READER

__all__ = ["READER"]
