"""Sizes as a program writes them, worked out: `s0*2`, `FloorDiv(s0 + 1, 2)`, `Mul(Integer(2), Symbol('s0', integer=True))`.

The text is read and calculated here, token by token, on numbers whose size is bounded; nothing of it is ever Python.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from opcost.core.checked import LARGEST, Bad, short

Number: TypeAlias = Any
"""An integer, a fraction, a float or a truth."""

LONGEST = 10_000
DEEPEST = 60
_TOKEN = re.compile(
    r"\s*(?:(\d+\.\d*(?:e[+-]?\d+)?|\d+)|'([^'\\]*)'|([A-Za-z_]\w*)|(\*\*|//|[<>=!]=|[-+*/%(),<>=&|~]))", re.ASCII
)


class UnknownSymbol(Exception):
    """A size depends on a symbol that has no value; the text names it."""


def evaluate(text: str, symbols: Mapping[str, int]) -> Number:
    """The value of an expression, given those of its symbols."""
    if len(text) > LONGEST:
        raise Bad(f"a size is an expression of {len(text)} letters")
    reader = _Reader(text, symbols)
    try:
        value = reader.expression(0, 0)
    except (ArithmeticError, ValueError) as exc:
        raise reader.unknown or Bad(f"the size {short(text)} cannot be worked out: {exc}") from exc
    except (TypeError, StopIteration) as exc:
        raise reader.fault() from exc
    if reader.token is not None or isinstance(value, (str, tuple)):
        raise reader.fault()
    if reader.unknown is not None:
        raise reader.unknown
    return value


def symbols_in(text: str) -> set[str]:
    """The names of symbols in an expression."""
    return set(re.findall(r"\b[a-z]+\d+\b", text))


class _Reader:
    """Reads an expression from left to right; what binds tighter is worked out first."""

    def __init__(self, text: str, symbols: Mapping[str, int]) -> None:
        self.text = text
        self.symbols = symbols
        self.unknown: UnknownSymbol | None = None
        """A symbol without a value; the rest is read with some number in its place, to see that it can be read."""
        self.at = 0
        self.token: tuple[str, str] | None = None
        self.next()

    def fault(self) -> Bad:
        return Bad(f"{short(self.text)} is not an expression of sizes")

    def next(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            if self.text[self.at :].strip():
                raise self.fault()
            self.token = None
            return
        self.at = found.end()
        kind = found.lastindex or 0
        self.token = (("number", "text", "name", "sign")[kind - 1], found[kind])

    def take(self, sign: str) -> None:
        if self.token != ("sign", sign):
            raise self.fault()
        self.next()

    def expression(self, least: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise Bad(f"the size {short(self.text)} is nested more than {DEEPEST} deep")
        left = self.operand(depth)
        while self.token is not None and self.token[0] == "sign" and self.token[1] in _BINARY:
            strength, function = _BINARY[self.token[1]]
            if strength < least:
                break
            self.next()
            right = self.expression(strength if function is _power else strength + 1, depth + 1)
            left = self.number(function(left, right))
        return left

    def operand(self, depth: int) -> Any:
        if self.token is None:
            raise self.fault()
        kind, text = self.token
        self.next()
        if kind == "number":
            return self.number(float(text) if "." in text else _integer(text))
        if kind == "text":
            return text
        if kind == "name":
            return self.call(text, depth) if self.token == ("sign", "(") else self.symbol(text)
        if text == "(":
            value = self.expression(0, depth + 1)
            if self.token == ("sign", ","):  # a pair of Piecewise
                self.next()
                value = (value, self.expression(0, depth + 1))
            self.take(")")
            return value
        if text in "-+~":
            value = self.expression(_UNARY, depth + 1)
            return self.number(not value if text == "~" else -value if text == "-" else +value)
        raise self.fault()

    def call(self, name: str, depth: int) -> Any:
        """A function of the language of sizes; its keywords only describe what is known anyway."""
        self.take("(")
        arguments = []
        while self.token != ("sign", ")"):
            value = self.argument(depth)
            if value is not None:
                arguments.append(value)
            if self.token != ("sign", ")"):
                self.take(",")
        self.take(")")
        if name == "Symbol" and arguments:
            return self.symbol(str(arguments[0]))
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self.fault()
        return self.number(function(*arguments))

    def argument(self, depth: int) -> Any:
        """The value of an argument, or None for a keyword."""
        here, token = self.at, self.token
        if token is not None and token[0] == "name":
            self.next()
            if self.token == ("sign", "="):
                self.next()
                if self.token is None or self.token[0] not in ("name", "number"):
                    raise self.fault()
                self.next()
                return None
            self.at, self.token = here, token
        return self.expression(0, depth + 1)

    def symbol(self, name: str) -> Any:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name not in self.symbols:
            if not re.fullmatch(r"[a-z]+\d+", name):
                raise self.fault()
            self.unknown = UnknownSymbol(name)
            return 2
        return self.symbols[name]

    def number(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return value
        if isinstance(value, complex) or not -LARGEST <= value <= LARGEST:
            raise Bad(f"the size {short(self.text)} is too large")
        if isinstance(value, Fraction):
            if value.denominator > LARGEST:
                raise Bad(f"the size {short(self.text)} is too fine")
            return value.numerator if value.denominator == 1 else value
        return value


def _integer(text: str) -> int:
    if len(text) > 40:
        raise Bad(f"a size has {len(text)} digits")
    return int(text)


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


def _piecewise(*cases: tuple[Number, Number]) -> Number:
    return next(value for value, condition in cases if condition)


_CONSTANTS: dict[str, Any] = {"True": True, "False": False, "true": True, "false": False}
_UNARY = 7
_BINARY: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "|": (1, lambda a, b: bool(a) or bool(b)),
    "&": (2, lambda a, b: bool(a) and bool(b)),
    "<": (4, operator.lt),
    "<=": (4, operator.le),
    ">": (4, operator.gt),
    ">=": (4, operator.ge),
    "==": (4, operator.eq),
    "!=": (4, operator.ne),
    "+": (5, operator.add),
    "-": (5, operator.sub),
    "*": (6, operator.mul),
    "/": (6, _quotient),
    "//": (6, operator.floordiv),
    "%": (6, operator.mod),
    "**": (8, _power),
}
"""How tightly a sign binds, and what it does."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Integer": lambda n: n,
    "Float": lambda text, *_: float(text) if len(str(text)) < 60 else float("nan"),
    "Rational": _quotient,
    "Identity": lambda n: n,
    "Add": lambda *terms: sum(terms),
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloatPow": lambda a, b: _power(float(a), b),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "CMod": math.fmod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "IntTrueDiv": _quotient,
    "FloatTrueDiv": _quotient,
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus,
    "LShift": _shift,
    "RShift": lambda a, by: _shift(a, -by),
    "Max": max,
    "Min": min,
    "Abs": abs,
    "floor": math.floor,
    "FloorToInt": math.floor,
    "ceiling": math.ceil,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "TruncToFloat": math.trunc,
    "RoundToInt": round,
    "RoundDecimal": round,
    "ToFloat": float,
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "sqrt": math.sqrt,
    "Where": lambda condition, a, b: a if condition else b,
    "Piecewise": _piecewise,
    "ExprCondPair": lambda value, condition: (value, condition),
    "Eq": operator.eq,
    "Equality": operator.eq,
    "Ne": operator.ne,
    "Unequality": operator.ne,
    "Lt": operator.lt,
    "StrictLessThan": operator.lt,
    "Le": operator.le,
    "LessThan": operator.le,
    "Gt": operator.gt,
    "StrictGreaterThan": operator.gt,
    "Ge": operator.ge,
    "GreaterThan": operator.ge,
    "And": lambda *conditions: all(conditions),
    "Or": lambda *conditions: any(conditions),
    "Not": operator.not_,
}
"""What a size may call: the functions of torch.utils._sympy, and those of sympy that it uses."""
