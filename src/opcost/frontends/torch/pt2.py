"""Reading an exported program without running anything that lies in the file.

PyTorch's own reader unpickles, loads compiled libraries, evaluates size expressions as Python and writes names into code
that it executes. So the archive is looked through first, and pickles may hold only tensors and plain values.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import pickle
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from torch.utils._sympy import functions

from opcost.errors import SourceError
from opcost.frontends.torch.state import replaced

_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Constant, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_FUNCTIONS = frozenset(
    {
        "Abs", "Add", "And", "Eq", "Float", "Ge", "Gt", "Integer", "Le", "Lt", "Max", "Min", "Mod", "Mul", "Ne", "Not", "Or",
        "Piecewise", "Pow", "Rational", "Symbol", "ceiling", "floor", *functions.__all__,
    }
)  # fmt: skip
"""What a size expression may call."""


def read(path: Path) -> torch.export.ExportedProgram:
    """The program in a file."""
    _inspect(path)
    with ExitStack() as undo:
        undo.enter_context(replaced(torch, "load", partial(_load_plain, torch.load)))
        undo.enter_context(replaced(pickle, "loads", _refuse_pickle))
        try:
            program = torch.export.load(path)
        except SourceError:
            raise
        except Exception as exc:
            reason = str(exc).strip().partition("\n")[0]
            raise SourceError(
                f"{path} is not an exported program that torch {torch.__version__} can read: {reason}"
            ) from exc
    program._guards_code = []  # code to check inputs with; the count itself finds out whether they fit
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function" and not _is_operator(node.target):
                raise SourceError(f"{path} calls {node.target}, which is not an operator")
    return program


def _inspect(path: Path) -> None:
    try:
        with ZipFile(path) as archive:
            names = archive.namelist()
            models = [json.loads(archive.read(name)) for name in names if re.search(r"(^|/)models/[^/]+\.json$", name)]
    except (BadZipFile, ValueError, NotImplementedError, RuntimeError, OSError) as exc:
        raise SourceError(f"{path} is not an exported program: {exc}") from exc
    if len(set(names)) != len(names):
        raise SourceError(f"{path} holds two files of one name")
    if any("data/aotinductor/" in name for name in names):
        raise SourceError(
            f"{path} holds compiled code, which is not counted", hint="save the exported program with torch.export.save"
        )
    if not models:
        raise SourceError(f"{path} is not an exported program: it holds no models/*.json")
    for key, text in _strings(models):
        if key == "name" and not re.fullmatch(r"[\w.]*", text):
            raise SourceError(f"{path} names something {text[:60]!r}, which is not a name")
        if key == "expr_str" and not _is_arithmetic(text):
            raise SourceError(f"{path} has a size {text[:60]!r}, which is not an expression of sizes")


def _strings(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON tree with the key under which it stands; keys of tables of names count as names."""
    if isinstance(tree, str):
        yield key, tree
    elif isinstance(tree, list):
        for item in tree:
            yield from _strings(item, key)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if key.endswith("_values"):
                yield "name", name
            yield from _strings(value, name)


def _is_arithmetic(text: str) -> bool:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_plain(node) for node in ast.walk(tree))


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    if isinstance(node, ast.keyword):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # the name of a symbol, the digits of a number
        return re.fullmatch(r"[\w.+-]*", node.value) is not None
    return isinstance(node, _ARITHMETIC)


def _load_plain(load: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    return load(source, *args, **{**kwargs, "weights_only": True})


def _refuse_pickle(*_: Any, **__: Any) -> Any:
    raise SourceError("the program holds a pickled object, which could be code")


def _is_operator(target: Any) -> bool:
    """What a program may call: operators, and arithmetic on sizes."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return True
    if target in (*vars(operator).values(), *vars(math).values()):
        return True
    return getattr(target, "__module__", "") == "torch" and str(getattr(target, "__name__", "")).startswith(
        ("sym_", "_sym_")
    )
