"""The language of `--where`: comparisons of named fields with literals, joined by and, or, not. Nothing is evaluated as code.

    time > 1ms and kind == "conv"            1us <= time < 1ms          not (module =~ "^layer4" or count == 1)
    type in ("aten::mm", "aten::addmm")      memory >= 4 MiB            share > 5%
    name like "*conv*"                       kind not in ("view", "copy")

`=~` searches for a regular expression, `!~` demands that there is none; `like` compares the whole text with a pattern in which
`*` is anything, `?` one letter and `[ab]` one of some letters; `not` may be put before `in` and `like`. A field that is not
known fails every comparison but `!=` and `!~`. Times and sizes need their unit, so that it is never guessed.
"""

import fnmatch
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from opcost.core.units import BINARY, COUNT, DECIMAL, TIME
from opcost.errors import OpcostError, nearest

Dimension: TypeAlias = Literal["text", "time", "bytes", "count", "ratio"]
Predicate: TypeAlias = Callable[[Any], bool]
T = TypeVar("T")

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
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


_UNITS: tuple[tuple[Dimension, Mapping[str, int]], ...] = (
    ("time", TIME | {"us": TIME["µs"]}),
    ("bytes", BINARY | DECIMAL | {f"{name}/s": size for name, size in (BINARY | DECIMAL).items()}),
    ("count", {name: size for name, size in (COUNT | {"k": 1000}).items() if name}),
    ("count", {f"{name}{word}": size for name, size in COUNT.items() for word in ("FLOPS", "FLOP", "FLOP/s")}),
)


@dataclass(frozen=True, slots=True)
class QueryField:
    """A quantity or text of a line: its dimension, and how to read it."""

    dimension: Dimension
    of: Callable[[Any], Any]  # A number, a text, a tuple of texts of which any may match, or None


class _Token(NamedTuple):
    kind: str
    text: str
    at: int
    value: Any = None
    dimension: Dimension | Literal["plain"] = "plain"


def compile_where(text: str, fields: Mapping[str, QueryField]) -> Predicate:
    """A function that returns whether a line fulfils the condition."""
    if len(text) > LONGEST:
        raise OpcostError(f"the condition has {len(text):,} characters; {LONGEST:,} are the most that are read")
    return _Parser(text, fields).whole()


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, QueryField]) -> None:
        self.text = text
        self.fields = fields
        self.tokens = list(self._tokens())
        self.place = self.depth = 0

    def whole(self) -> Predicate:
        found = self._either()
        if self._now().kind != "end":
            raise self._wrong(f"expected and, or, or the end, not {self._now().text!r}")
        return found

    # -- grammar ---------------------------------------------------------------------------------------------------

    def _either(self) -> Predicate:
        return _combined(self._separated("or", lambda: _combined(self._separated("and", self._single), all)), any)

    def _separated(self, mark: str, one: Callable[[], T]) -> list[T]:
        found = [one()]
        while self._take(mark):
            found.append(one())
        return found

    def _single(self) -> Predicate:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._wrong(f"more than {DEEPEST} levels")
        if self._take("not"):
            found = _inverted(self._single())
        elif self._take("("):
            found = self._either()
            self._close()
        else:
            found = self._comparison()
        self.depth -= 1
        return found

    def _comparison(self) -> Predicate:
        left = self._operand()
        following = self.tokens[min(self.place + 1, len(self.tokens) - 1)]
        refused = following.kind == "word" and following.text in ("in", "like") and self._take("not")
        if self._take("in"):
            if not self._take("("):
                raise self._wrong("a list in brackets belongs after in")
            tests = [self._compare(left, "==", option) for option in self._separated(",", self._operand)]
            self._close()
            found = _combined(tests, any)
            return _inverted(found) if refused else found
        if self._take("like"):
            right = self._next()
            if right.kind != "string" or self._dimension(left) != "text":
                raise self._wrong('like takes a text field and a quoted pattern: name like "*conv*"', at=right.at)
            return self._matching(left, re.compile(fnmatch.translate(right.value)).match, wanted=not refused)
        parts: list[Predicate] = []
        while self._now().kind == "mark" and self._now().text in (*_TESTS, "=", "=~", "!~"):
            mark = self._next().text
            right = self._operand()
            parts.append(self._compare(left, "==" if mark == "=" else mark, right))
            left = right
        if not parts:
            raise self._wrong("a comparison is missing", hint='write a field, a sign and a value: kind == "conv"')
        return _combined(parts, all)

    def _close(self) -> None:
        if not self._take(")"):
            raise self._wrong("a closing bracket is missing")

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
        if mark in ("=~", "!~"):
            if right.kind != "string" or self._dimension(left) != "text":
                raise self._wrong(f"{mark} takes a text field and a quoted regular expression", at=right.at)
            try:
                return self._matching(left, re.compile(right.value).search, wanted=mark == "=~")
            except re.error as fault:
                raise self._wrong(f"{right.text} is not a regular expression: {fault}", at=right.at) from None
        self._check(left, right)
        test = _TESTS[mark]
        read_left, read_right = self._reader(left), self._reader(right)
        return lambda line: _any_pair(read_left(line), read_right(line), mark, test)

    def _matching(self, left: _Token, match: Callable[[str], object], *, wanted: bool) -> Predicate:
        read = self._reader(left)
        return lambda line: any(match(text) for text in _several(read(line))) == wanted

    def _check(self, left: _Token, right: _Token) -> None:
        """Texts meet texts, times meet times; a bare number fits whatever has no unit, and zero fits all."""
        a, b = self._dimension(left), self._dimension(right)
        if a == b or ("plain" in (a, b) and ("count" in (a, b) or "ratio" in (a, b))):
            return
        if "text" not in (a, b) and "plain" in (a, b) and 0 in (left.value, right.value):
            return
        example = {"time": "1.5ms", "bytes": "4MiB", "text": '"conv"', "ratio": "5%", "count": "2G"}
        hint = f"write it like {example.get(a if left.kind == 'name' else b, '1')}"
        raise self._wrong(f"{left.text} and {right.text} cannot be compared", at=right.at, hint=hint)

    def _dimension(self, token: _Token) -> str:
        if token.kind == "name":
            return self.fields[token.text].dimension
        return "text" if token.kind == "string" else token.dimension

    def _reader(self, token: _Token) -> Callable[[Any], Any]:
        return self.fields[token.text].of if token.kind == "name" else lambda line: token.value

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _now(self) -> _Token:
        return self.tokens[self.place]

    def _next(self) -> _Token:
        token = self.tokens[self.place]
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def _take(self, text: str) -> bool:
        found = self._now().kind in ("mark", "word") and self._now().text == text
        self.place += found
        return found

    def _wrong(self, what: str, *, at: int | None = None, hint: str = "") -> OpcostError:
        place = self._now().at if at is None else at
        text = f"the condition is not understood: {what}\n    {self.text}\n    {' ' * place}^"
        return OpcostError(text, hint=hint)

    def _tokens(self) -> Iterator[_Token]:
        text, place = self.text, 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._wrong("this is not understood", at=len(text) - len(text[place:].lstrip()))
            at, place = found.start(found.lastgroup or 0), found.end()
            if found["string"] is not None:
                # Only a quote or a backslash is escaped; `\\d` is left for the regular expression.
                yield _Token("string", found["string"], at, re.sub(r"""\\(["'\\])""", r"\1", found["string"][1:-1]))
            elif found["number"] is not None:
                unit = found["unit"] or ""
                if unit.casefold() in _WORDS:  # `count == 1 and ...`: the word after a number is not a unit
                    unit, place = "", found.start("unit")
                yield self._number(found["number"], unit, found.start("number"))
            elif found["name"] is not None:
                word = found["name"].casefold()
                yield _Token("word", word, at) if word in _WORDS else _Token("name", found["name"], at)
            else:
                yield _Token("mark", found["mark"], at)
        yield _Token("end", "", len(text))

    def _number(self, digits: str, unit: str, at: int) -> _Token:
        exact = Fraction(digits.replace("_", ""))
        dimension: Dimension | Literal["plain"] = "plain"
        if unit == "%":
            return _Token("number", f"{digits}%", at, float(exact / 100), "ratio")
        if unit:
            found = next(((dimension, units[unit]) for dimension, units in _UNITS if unit in units), None)
            if found is None:
                hint = "times: ns us ms s; sizes: KiB MiB kB MB; counts: K M G T"
                raise self._wrong(f"the unit {unit!r} is not known", at=at, hint=hint)
            dimension, exact = found[0], exact * found[1]
        return _Token(
            "number", f"{digits}{unit}", at, int(exact) if exact.denominator == 1 else float(exact), dimension
        )


def _combined(parts: list[Predicate], how: Callable[[Iterator[bool]], bool]) -> Predicate:
    return parts[0] if len(parts) == 1 else lambda line: how(part(line) for part in parts)


def _inverted(test: Predicate) -> Predicate:
    return lambda line: not test(line)


def _several(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _any_pair(left: Any, right: Any, mark: str, test: Callable[[Any, Any], bool]) -> bool:
    """Several texts on a side fulfil a comparison if any of them does; all must differ for `!=`."""
    if left is None or right is None:
        return mark == "!="
    pairs = [test(a, b) for a in _several(left) for b in _several(right)]
    return all(pairs) if mark == "!=" else any(pairs)
