"""Sizes as a program writes them, worked out: `s0*2`, `FloorDiv(s0 + 1, 2)`, `Mul(Integer(2), Symbol('s0', integer=True))`.

The text has the syntax of Python. It is parsed, and calculated here part by part on numbers whose size is bounded; it never runs.
"""

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from opcost.core.parsing import LARGEST, Bad, short

Number: TypeAlias = Any  # An integer, a fraction, a float or a truth

LONGEST = 10_000
DEEPEST = 200


class UnknownSymbol(Exception):
    """A size depends on a symbol that has no value; the text names it."""


def evaluate(text: str, symbols: Mapping[str, int]) -> Number:
    """The value of an expression, given those of its symbols."""
    if len(text) > LONGEST:
        raise Bad(f"a size is an expression of {len(text)} letters")
    fault = Bad(f"{short(text)} is not an expression of sizes")
    reader = _SizeExpression(short(text), symbols)
    try:
        value = reader.number(_parsed(text.strip()), 0)
    except (ArithmeticError, ValueError) as exc:
        raise reader.unknown or Bad(f"the size {short(text)} cannot be worked out: {exc}") from exc
    except (SyntaxError, TypeError, StopIteration, RecursionError, MemoryError) as exc:
        raise fault from exc
    if reader.unknown is not None:
        raise reader.unknown
    return value


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body


def symbols_in(text: str) -> set[str]:
    """The names of symbols in an expression."""
    return set(re.findall(r"\b[a-z]+\d+\b", text))


class _SizeExpression:
    """Works an expression out; what is no number, or is not known, raises a TypeError."""

    def __init__(self, text: str, symbols: Mapping[str, int]) -> None:
        self.text, self.symbols = text, symbols
        self.unknown: UnknownSymbol | None = None
        """A symbol without a value; the rest is read with some number in its place, to see that it can be read."""

    def number(self, node: ast.expr, depth: int) -> Number:
        """The value of a part that must be a number, which is neither too large nor too fine."""
        value = self._value(node, depth + 1)
        if isinstance(value, complex) or not -LARGEST <= value <= LARGEST:
            raise Bad(f"the size {self.text} is too large")
        if not isinstance(value, Fraction):
            return value
        if value.denominator > LARGEST:
            raise Bad(f"the size {self.text} is too fine")
        return value.numerator if value.denominator == 1 else value

    def _value(self, node: ast.expr, depth: int) -> Any:
        if depth > DEEPEST:
            raise Bad(f"the size {self.text} is nested more than {DEEPEST} deep")
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.UnaryOp(op=op, operand=inner) if type(op) in _SIGNS:
                return _SIGNS[type(op)](self.number(inner, depth))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                return _SIGNS[type(op)](self.number(left, depth), self.number(right, depth))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SIGNS:
                return _SIGNS[type(op)](self.number(left, depth), self.number(right, depth))
            case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)), *_]):
                return self._symbol(name)
            case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str(digits)), *_]):
                return float(digits) if len(digits) < 60 else math.nan
            case ast.Call(func=ast.Name(id="Piecewise"), args=cases):
                return next(value for value, chosen in [self._case(each, depth) for each in cases] if chosen)
            case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
                # Its keywords only describe what is known anyway.
                return _FUNCTIONS[name](*[self.number(each, depth) for each in args])
        raise TypeError

    def _case(self, node: ast.expr, depth: int) -> tuple[Number, Number]:
        match node:
            case ast.Tuple(elts=[value, chosen]) | ast.Call(func=ast.Name(id="ExprCondPair"), args=[value, chosen]):
                return self.number(value, depth), self.number(chosen, depth)
        raise TypeError

    def _symbol(self, name: str) -> int:
        if name in ("true", "false"):
            return name == "true"
        if name not in self.symbols:
            if not re.fullmatch(r"[a-z]+\d+", name):
                raise TypeError
            self.unknown = UnknownSymbol(name)
            return 2
        return self.symbols[name]


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) > 128 or (abs(base) > 1 and abs(exponent) * math.log2(abs(base)) > 128):
        raise Bad("a power in a size is too large")
    if isinstance(base, int) and isinstance(exponent, int):
        return Fraction(base) ** exponent
    return base**exponent


def _quotient(a: Number, b: Number) -> Number:
    return a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / b


def _shift(a: int, by: int) -> Number:
    return a * _power(2, by) if by >= 0 else a // 2 ** min(-by, 256)


def _product(*factors: Number) -> Number:
    result: Number = 1
    for factor in factors:
        result *= factor
        if abs(result) > LARGEST:
            raise Bad("a product in a size is too large")
    return result


_SIGNS: dict[type[ast.AST], Callable[..., Number]] = {
    ast.BitOr: lambda a, b: bool(a) or bool(b), ast.BitAnd: lambda a, b: bool(a) and bool(b), ast.Invert: operator.not_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _quotient,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "Integer": lambda n: n, "Identity": lambda n: n, "Float": lambda n, *_: float(n), "Rational": _quotient,
    "Add": lambda *terms: sum(terms), "Mul": _product, "Pow": _power, "PowByNatural": _power,
    "FloatPow": lambda a, b: _power(float(a), b), "Mod": operator.mod, "PythonMod": operator.mod, "CMod": math.fmod,
    "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "CeilDiv": lambda a, b: -(-a // b),
    "IntTrueDiv": _quotient, "FloatTrueDiv": _quotient, "LShift": _shift, "RShift": lambda a, by: _shift(a, -by),
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus, "Max": max, "Min": min, "Abs": abs,
    "floor": math.floor, "FloorToInt": math.floor, "ceiling": math.ceil, "CeilToInt": math.ceil, "TruncToInt": math.trunc,
    "TruncToFloat": math.trunc, "RoundToInt": round, "RoundDecimal": round, "ToFloat": float,
    "OpaqueUnaryFn_sqrt": math.sqrt, "sqrt": math.sqrt, "Where": lambda condition, a, b: a if condition else b,
    "Eq": operator.eq, "Equality": operator.eq, "Ne": operator.ne, "Unequality": operator.ne, "Lt": operator.lt,
    "StrictLessThan": operator.lt, "Le": operator.le, "LessThan": operator.le, "Gt": operator.gt,
    "StrictGreaterThan": operator.gt, "Ge": operator.ge, "GreaterThan": operator.ge,
    "And": lambda *conditions: all(conditions), "Or": lambda *conditions: any(conditions), "Not": operator.not_,
}  # fmt: skip
"""What a size may call: the functions of torch.utils._sympy, and those of sympy that it uses."""
