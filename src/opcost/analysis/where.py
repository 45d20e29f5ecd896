"""The language of `--where`: comparisons of named fields with literals, joined by and, or, not. Nothing is evaluated as code.

    time > 1ms and kind == "conv"            1us <= time < 1ms          not (module =~ "^layer4" or count == 1)
    type in ("aten::mm", "aten::addmm")      memory >= 4 MiB            share > 5%
    name like "*conv*"                       kind not in ("view", "copy")

`=~` searches for a regular expression, `!~` demands that there is none; `like` holds the whole text against a pattern in which
`*` stands for anything, `?` for one letter and `[ab]` for one of some letters; `not` may stand before `in` and `like`. A field
that is not known fails every comparison but `!=` and `!~`. Times and sizes need their unit, so that nobody has to guess it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

from opcost.core.units import BINARY, COUNT, DECIMAL, TIME
from opcost.errors import OpcostError, nearest

Dimension: TypeAlias = Literal["text", "time", "bytes", "count", "ratio"]
Predicate: TypeAlias = Callable[[Any], bool]

LONGEST = 10_000
DEEPEST = 50

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>[+-]?(?:\d+(?:_\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3}(?![A-Za-z]))?)\s?(?P<unit>%|[A-Za-zµ]+(?:/s)?)?
      | (?P<name>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<mark>==|!=|<=|>=|=~|!~|<|>|=|\(|\)|,)
    )""",
    re.VERBOSE,
)
_WORDS = ("and", "or", "not", "in", "like")
_COMPARISONS = ("==", "=", "!=", "<", "<=", ">", ">=", "=~", "!~")


@dataclass(frozen=True, slots=True)
class Field:
    """Something that can be asked of a line: its dimension, and how to read it."""

    dimension: Dimension
    of: Callable[[Any], Any]
    """A number, a text, a tuple of texts of which any may match, or None."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int
    value: Any = None
    dimension: Dimension | Literal["plain"] = "plain"


def compile_where(text: str, fields: Mapping[str, Field]) -> Predicate:
    """A function that tells whether a line fulfils the condition."""
    if len(text) > LONGEST:
        raise OpcostError(f"the condition has {len(text):,} characters; {LONGEST:,} are the most that are read")
    return _Parser(text, fields).whole()


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        self.text = text
        self.fields = fields
        self.tokens = list(_tokens(text))
        self.place = 0
        self.depth = 0

    def whole(self) -> Predicate:
        found = self._either()
        if self._now().kind != "end":
            raise self._wrong(f"expected and, or, or the end, not {self._now().text!r}")
        return found

    # -- grammar ---------------------------------------------------------------------------------------------------

    def _either(self) -> Predicate:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda line: any(part(line) for part in parts)

    def _both(self) -> Predicate:
        parts = [self._single()]
        while self._take("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda line: all(part(line) for part in parts)

    def _single(self) -> Predicate:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._wrong(f"more than {DEEPEST} levels")
        try:
            if self._take("not"):
                inner = self._single()
                return lambda line: not inner(line)
            if self._take("("):
                inner = self._either()
                if not self._take(")"):
                    raise self._wrong("a closing bracket is missing")
                return inner
            left = self._operand()
            parts: list[Predicate] = []
            refused = self._now().text == "not" and self._after("in", "like") and self._take("not")
            if self._take("in"):
                return _inverted(self._member(left)) if refused else self._member(left)
            if self._take("like"):
                return self._pattern(left, wanted=not refused)
            while self._now().kind == "mark" and self._now().text in _COMPARISONS:
                mark = self._next().text
                right = self._operand()
                parts.append(self._compare(left, "==" if mark == "=" else mark, right))
                left = right
            if not parts:
                raise self._wrong("a comparison is missing", hint='write a field, a sign and a value: kind == "conv"')
            return parts[0] if len(parts) == 1 else lambda line: all(part(line) for part in parts)
        finally:
            self.depth -= 1

    def _member(self, left: _Token) -> Predicate:
        if not self._take("("):
            raise self._wrong("a list in brackets belongs after in")
        options = [self._operand()]
        while self._take(","):
            options.append(self._operand())
        if not self._take(")"):
            raise self._wrong("a closing bracket is missing")
        tests = [self._compare(left, "==", option) for option in options]
        return lambda line: any(test(line) for test in tests)

    def _pattern(self, left: _Token, *, wanted: bool) -> Predicate:
        right = self._next()
        if right.kind != "string" or self._dimension(left) != "text":
            raise self._wrong('like takes a text field and a quoted pattern: name like "*conv*"', at=right.at)
        pattern = re.compile(fnmatch.translate(right.value))
        read = self._reader(left)
        return lambda line: any(pattern.match(text) for text in _texts(read(line))) == wanted

    def _operand(self) -> _Token:
        token = self._next()
        if token.kind == "name":
            if token.text.casefold() not in self.fields:
                near = nearest(token.text, self.fields)
                listed = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(self.fields))}"
                raise self._wrong(
                    f"unknown field {token.text!r}; {listed}", at=token.at, hint='texts need quotes: kind == "conv"'
                )
            return token._replace(text=token.text.casefold())
        if token.kind in ("string", "number"):
            return token
        raise self._wrong(f"expected a field or a value, not {token.text or 'the end'!r}", at=token.at)

    # -- meaning ---------------------------------------------------------------------------------------------------

    def _compare(self, left: _Token, mark: str, right: _Token) -> Predicate:
        a, b = self._dimension(left), self._dimension(right)
        if mark in ("=~", "!~"):
            if right.kind != "string" or self._dimension(left) != "text":
                raise self._wrong(f"{mark} takes a text field and a quoted regular expression", at=right.at)
            try:
                pattern = re.compile(right.value)
            except re.error as fault:
                raise self._wrong(f"{right.text} is not a regular expression: {fault}", at=right.at) from None
            read = self._reader(left)
            wanted = mark == "=~"
            return lambda line: any(pattern.search(text) for text in _texts(read(line))) == wanted
        self._check(a, b, left, right)
        test = _TESTS[mark]
        read_left, read_right = self._reader(left), self._reader(right)

        def compare(line: Any) -> bool:
            return _any_pair(read_left(line), read_right(line), mark, test)

        return compare

    def _check(self, a: str, b: str, left: _Token, right: _Token) -> None:
        """Texts meet texts, times meet times; a bare number fits whatever has no unit, and zero fits all."""
        if a == b or (a, b) in (("count", "plain"), ("plain", "count"), ("ratio", "plain"), ("plain", "ratio")):
            return
        if "text" not in (a, b) and "plain" in (a, b) and 0 in (left.value, right.value):
            return
        example = {"time": "1.5ms", "bytes": "4MiB", "text": '"conv"', "ratio": "5%", "count": "2G"}
        wanted = a if left.kind == "name" else b
        raise self._wrong(
            f"{left.text} and {right.text} cannot be compared",
            at=right.at,
            hint=f"write it like {example.get(wanted, '1')}",
        )

    def _dimension(self, token: _Token) -> str:
        if token.kind == "name":
            return self.fields[token.text].dimension
        return "text" if token.kind == "string" else token.dimension

    def _reader(self, token: _Token) -> Callable[[Any], Any]:
        if token.kind == "name":
            return self.fields[token.text].of
        value = token.value
        return lambda line: value

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _now(self) -> _Token:
        return self.tokens[self.place]

    def _next(self) -> _Token:
        token = self.tokens[self.place]
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def _after(self, *texts: str) -> bool:
        """Whether one of these words comes next but one."""
        token = self.tokens[min(self.place + 1, len(self.tokens) - 1)]
        return token.kind == "word" and token.text in texts

    def _take(self, text: str) -> bool:
        token = self._now()
        if token.kind in ("mark", "word") and token.text == text:
            self.place += 1
            return True
        return False

    def _wrong(self, what: str, *, at: int | None = None, hint: str = "") -> OpcostError:
        return _wrong(self.text, what, self._now().at if at is None else at, hint)


def _inverted(test: Predicate) -> Predicate:
    return lambda line: not test(line)


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            raise _wrong(text, "this is not understood", place + len(text[place:]) - len(text[place:].lstrip()))
        at = found.start(found.lastgroup or 0)
        if found["string"] is not None:
            yield _Token("string", found["string"], at, re.sub(r"\\(.)", _unescaped, found["string"][1:-1]))
        elif found["number"] is not None:
            at = found.start("number")
            yield _number(text, found["number"], found["unit"] or "", at)
        elif found["name"] is not None:
            word = found["name"].casefold()
            yield _Token("word", word, at) if word in _WORDS else _Token("name", found["name"], at)
        else:
            yield _Token("mark", found["mark"], at)
        place = found.end()
        if found["unit"] is not None and found["unit"].casefold() in _WORDS:
            # `count == 1 and ...`: the word after a number is not a unit.
            place = found.start("unit")
    yield _Token("end", "", len(text))


def _unescaped(found: re.Match[str]) -> str:
    r"""Only a quote or a backslash is escaped; `\d` is left for the regular expression."""
    return found[1] if found[1] in "\"'\\" else found[0]


_UNITS: tuple[tuple[Dimension, Mapping[str, int]], ...] = (
    ("time", TIME | {"us": TIME["µs"]}),
    ("bytes", BINARY | DECIMAL | {f"{name}/s": size for name, size in (BINARY | DECIMAL).items()}),
    ("count", {name: size for name, size in (COUNT | {"k": 1000}).items() if name}),
    ("count", {f"{name}{word}": size for name, size in COUNT.items() for word in ("FLOPS", "FLOP", "FLOP/s")}),
)


def _number(text: str, digits: str, unit: str, at: int) -> _Token:
    exact = Fraction(digits.replace("_", ""))
    if unit.casefold() in _WORDS:
        unit = ""
    if unit == "%":
        return _Token("number", f"{digits}%", at, float(exact / 100), "ratio")
    if not unit:
        return _Token("number", digits, at, int(exact) if exact.denominator == 1 else float(exact))
    for dimension, units in _UNITS:
        if unit in units:
            value = exact * units[unit]
            return _Token(
                "number", f"{digits}{unit}", at, int(value) if value.denominator == 1 else float(value), dimension
            )
    raise _wrong(
        text, f"the unit {unit!r} is not known", at, "times: ns us ms s; sizes: KiB MiB kB MB; counts: K M G T"
    )


def _wrong(text: str, what: str, at: int, hint: str = "") -> OpcostError:
    return OpcostError(f"the condition is not understood: {what}\n    {text}\n    {' ' * at}^", hint=hint)


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (str(value),)


def _any_pair(left: Any, right: Any, mark: str, test: Callable[[Any, Any], bool]) -> bool:
    """Several texts on a side fulfil a comparison if any of them does; all must differ for `!=`."""
    if left is None or right is None:
        return mark == "!="
    lefts = left if isinstance(left, tuple) else (left,)
    rights = right if isinstance(right, tuple) else (right,)
    pairs = [test(a, b) for a in lefts for b in rights]
    return all(pairs) if mark == "!=" else any(pairs)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
