"""Text of an expression to a tree. The whole grammar is here; nothing is evaluated and no name is looked up.

    value  = path | call | number | text | true True false False null None
    path   = "$" NAME { "." NAME | "." digits | "[" [sign] digits "]" }
    call   = "$F." function "(" [ value { "," value } [ "," ] ] ")"

NAME is letters, digits, ``_``, ``-`` and ``$``. Letters are those of any script, because ids are (rule 20). Texts are
quoted by ' or " and have no escapes. Time is linear in the text; nesting is bounded, so no input overflows the stack.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from plaita.flow.expr_limits import MAX_DEPTH, MAX_EXPRESSION_BYTES, shortened
from plaita.jsontext import MAX_INTEGER_DIGITS

_NAME = re.compile(r"[\w$-]+")
_FUNCTION = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INDEX = re.compile(r"\[([+-]?[0-9]+)\]")
_WORD = re.compile(r"\w+")
_WORDS: dict[str, Any] = {"True": True, "true": True, "False": False, "false": False, "null": None, "None": None}
_MAX_INDEX_DIGITS = 18
_OPERATORS = "+-*/%<>=!&|?"


class SyntaxFault(Exception):
    """Where the text stops being an expression. ``position`` counts characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, text, boolean or null written in the expression."""

    value: Any


@dataclass(frozen=True, slots=True)
class Index:
    """``[n]``: a place in a list, counted from the end when negative."""

    number: int


@dataclass(frozen=True, slots=True)
class Digits:
    """``.12``: a place in a list or a key of an object, whichever the value turns out to be."""

    text: str
    number: int


@dataclass(frozen=True, slots=True)
class Path:
    """``$ROOT`` and its steps; a ``str`` step is a key."""

    root: str
    steps: tuple[str | Index | Digits, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """``$F.function(arguments)``."""

    function: str
    arguments: tuple[Tree, ...]
    text: str


Tree = Literal | Path | Call


def parse_expression(text: str) -> Tree:
    """The tree of a text that starts with ``$`` and is an expression to its end. Raises SyntaxFault."""
    _require_short(text)
    parser = _Parser(text, 0)
    tree = parser.reference(0)
    parser.skip_space()
    if parser.position < len(text):
        parser.fail_trailing(tree)
    return tree


def parse_embedded(text: str, start: int) -> tuple[Tree, int]:
    """The tree of the ``{% %}`` whose inside begins at ``start``, and the position behind it. Raises SyntaxFault."""
    parser = _Parser(text, start)
    parser.skip_space()
    if text.startswith("%}", parser.position):
        raise SyntaxFault("{% %} holds no expression", start)
    tree = parser.value(0)
    parser.skip_space()
    if not text.startswith("%}", parser.position):
        parser.fail_trailing(tree)
    _require_short(text[start : parser.position])
    return tree, parser.position + 2


def leading_name(text: str) -> str | None:
    """The name that follows a ``$`` at the very beginning, or None."""
    name = _NAME.match(text, 1) if text.startswith("$") else None
    return name.group() if name else None


def _require_short(text: str) -> None:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_EXPRESSION_BYTES:
        raise SyntaxFault(f"the expression has {size} bytes; at most {MAX_EXPRESSION_BYTES} are allowed", 0)


class _Parser:
    __slots__ = ("position", "start", "text")

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.start = position
        self.position = position

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        if match is not None:
            self.position = match.end()

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        raise SyntaxFault(reason, self.position if position is None else position)

    def value(self, depth: int) -> Tree:
        self.skip_space()
        if self.position - self.start > MAX_EXPRESSION_BYTES:
            self.fail(f"the expression has more than {MAX_EXPRESSION_BYTES} bytes", self.start)
        first = self.peek()
        if first == "$":
            return self.reference(depth)
        if first in ("'", '"') and first:
            return self._text(first)
        number = _NUMBER.match(self.text, self.position)
        if number is not None:
            return self._number(number)
        word = _WORD.match(self.text, self.position)
        if word is not None and word.group() in _WORDS:
            self.position = word.end()
            return Literal(_WORDS[word.group()])
        self._fail_value(first, word.group() if word else "")

    def _fail_value(self, first: str, word: str) -> NoReturn:
        if not first:
            self.fail("the expression ends where a value is expected")
        if word:
            shown = shortened(word, 40)
            if self.text.startswith("(", self.position + len(word)):
                self.fail(f"{shown}(...) is no call; functions are written $F.{shown}(...)")
            self.fail(f"{shown} is no value; write '{shown}' for a text, $INPUT.{shown} for data")
        if first in "([{":
            self.fail(f"{first} is not allowed here: lists, objects and parentheses are not part of expressions")
        self.fail(f"{first!r} is not the beginning of a value")

    def _text(self, quote: str) -> Literal:
        end = self.text.find(quote, self.position + 1)
        if end < 0:
            self.fail(f"the text that begins with {quote} has no closing {quote}")
        value = self.text[self.position + 1 : end]
        self.position = end + 1
        return Literal(value)

    def _number(self, match: re.Match[str]) -> Literal:
        written = match.group()
        if len(written) > MAX_INTEGER_DIGITS:
            self.fail(f"a number of {len(written)} characters; at most {MAX_INTEGER_DIGITS} are read")
        value: int | float = float(written) if match.group(1) or match.group(2) else int(written)
        if isinstance(value, float) and not math.isfinite(value):
            self.fail(f"the number {shortened(written, 40)} is too large")
        self.position = match.end()
        return Literal(value)

    def reference(self, depth: int) -> Tree:
        start = self.position
        name = _NAME.match(self.text, start + 1)
        if name is None:
            self.fail("a name must follow $")
        self.position = name.end()
        if name.group() == "F":
            return self._call(start, depth)
        steps: list[str | Index | Digits] = []
        while True:
            step = self._step()
            if step is None:
                return Path(name.group(), tuple(steps), self.text[start : self.position])
            steps.append(step)

    def _step(self) -> str | Index | Digits | None:
        first = self.peek()
        if first == ".":
            name = _NAME.match(self.text, self.position + 1)
            if name is None:
                self.fail("a name or a number must follow the dot")
            self.position = name.end()
            segment = name.group()
            if segment.isascii() and segment.isdigit() and len(segment) <= _MAX_INDEX_DIGITS:
                return Digits(segment, int(segment))
            return segment
        if first == "[":
            index = _INDEX.match(self.text, self.position)
            if index is None:
                self.fail("[ ] holds a whole number, as in [0] or [-1]; keys follow a dot, or use $F.get(value, 'key')")
            if len(index.group(1)) > _MAX_INDEX_DIGITS:
                self.fail("the index is larger than any list")
            self.position = index.end()
            return Index(int(index.group(1)))
        return None

    def _call(self, start: int, depth: int) -> Call:
        if depth >= MAX_DEPTH:
            self.fail(f"calls are nested deeper than {MAX_DEPTH}", start)
        if self.peek() != ".":
            self.fail("$F is no value; functions are called as $F.name(...)", start)
        name = _FUNCTION.match(self.text, self.position + 1)
        if name is None:
            self.fail("the name of a function must follow $F.")
        self.position = name.end()
        self.skip_space()
        if self.peek() != "(":
            self.fail(f"$F.{shortened(name.group(), 40)} needs its arguments in parentheses")
        self.position += 1
        arguments = self._arguments(depth)
        return Call(name.group(), arguments, self.text[start : self.position])

    def _arguments(self, depth: int) -> tuple[Tree, ...]:
        arguments: list[Tree] = []
        while True:
            self.skip_space()
            if self.peek() == ")":
                self.position += 1
                return tuple(arguments)
            arguments.append(self.value(depth + 1))
            self.skip_space()
            following = self.peek()
            if following == ",":
                self.position += 1
            elif following != ")":
                self._fail_after_argument(following)

    def _fail_after_argument(self, following: str) -> NoReturn:
        if not following:
            self.fail("the call has no closing )")
        if following in _OPERATORS:
            self.fail(f"{following!r} is not allowed: there are no operators; use functions such as $F.add(a, b)")
        self.fail(f"{following!r} stands where , or ) is expected")

    def fail_trailing(self, tree: Tree) -> NoReturn:
        following = self.peek()
        if isinstance(tree, Call) and following in (".", "["):
            self.fail("no path may follow a call; use $F.get(call, 'key') or $F.getListItem(call, index)")
        if following == "(":
            self.fail("only functions are called, as $F.name(...); data has no methods")
        if following and following in _OPERATORS:
            self.fail(f"{following!r} is not allowed: there are no operators; use functions such as $F.add(a, b)")
        if not following:
            self.fail("the expression has no end %}")
        self.fail(f"{following!r} follows the end of the expression")
