"""YAML text to JSON values, by the rules of JSON: text keys, no key twice, only JSON's types.

Builds from parser events, without recursion, so that no text overflows the stack; aliases are counted at their full
size, so that none explodes in memory. Scalars follow the YAML 1.2 core schema (``yes`` and dates are text).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from plaita.errors import PlaitaError

MAX_VALUES = 1_000_000
MAX_DEPTH = 512
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]{1,4300}\Z")
_OCTAL_OR_HEX = re.compile(r"0(?:o[0-7]{1,4000}|x[0-9a-fA-F]{1,3500})\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAG = "tag:yaml.org,2002:"


class YAMLTextError(ValueError, PlaitaError):
    """Text that is not YAML, or YAML that JSON cannot express. Names line and column."""


@dataclass(slots=True)
class _Open:
    """A list or object under construction. ``key`` is the key read last, waiting for its value."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    count_before: int
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    count: int = 0
    result: Any = None
    documents: int = 0

    def feed(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._begin(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            done = self.open.pop()
            if done.anchor:
                self.anchors[done.anchor] = (done.value, self.count - done.count_before)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise _at(event, "a second document; one file holds one")

    def _begin(self, event: Any) -> None:
        if len(self.open) >= MAX_DEPTH:
            raise _at(event, f"nested deeper than {MAX_DEPTH} levels")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        expected = _TAG + ("map" if is_mapping else "seq")
        if event.tag not in (None, "!", expected):
            raise _at(event, f"the tag {event.tag!r} means nothing here")
        value: dict[str, Any] | list[Any] = {} if is_mapping else []
        if event.anchor:
            self.anchors.pop(event.anchor, None)
        before = self.count
        self._add(value, event)
        self.open.append(_Open(value, event.anchor, before))

    def _scalar(self, event: Any) -> None:
        value = _scalar_value(event)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        self._add(value, event)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise _at(event, f"the alias *{event.anchor} has no finished anchor before it")
        value, size = self.anchors[event.anchor]
        self._add(value, event, size)

    def _add(self, value: Any, event: Any, size: int = 1) -> None:
        self.count += size
        if self.count > MAX_VALUES:
            raise _at(event, f"more than {MAX_VALUES} values once aliases are expanded")
        if not self.open:
            self.result = value
            return
        parent = self.open[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            parent.key = _key(value, parent.value, event)
        else:
            parent.value[parent.key] = value
            parent.key = None


def loads(text: str) -> Any:
    """The value of one YAML document. Raises YAMLTextError."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.feed(event)
    except yaml.YAMLError as error:
        raise YAMLTextError(f"not YAML: {_described(error)}") from None
    except RecursionError:
        raise YAMLTextError(f"nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeError as error:
        raise YAMLTextError(f"not YAML: {error.__class__.__name__}: {error.reason}") from None  # type: ignore[attr-defined]
    return builder.result


def _key(value: Any, into: dict[str, Any], event: Any) -> str:
    if not isinstance(value, str):
        raise _at(event, "a key that is no text; quote it")
    if value == "<<" and not event.style:
        raise _at(event, "merge keys (<<) are not read; write the fields out")
    if value in into:
        raise _at(event, f"the key {value[:60]!r} stands twice in one object")
    return value


def _scalar_value(event: Any) -> Any:
    text: str = event.value
    if event.tag not in (None, "!"):
        return _tagged(event, text)
    if event.style or event.tag == "!":
        return text
    return _plain(event, text)


def _tagged(event: Any, text: str) -> Any:
    if event.tag == _TAG + "str":
        return text
    if event.tag in (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"):
        return _plain(event, text)
    raise _at(event, f"the tag {event.tag!r} means nothing here")


def _plain(event: Any, text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    if _OCTAL_OR_HEX.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        number = float(text)
        if math.isinf(number):
            raise _at(event, f"the number {text[:40]} is too large for any reader to keep")
        return number
    if _NO_NUMBER.match(text):
        raise _at(event, f"{text} is no JSON number")
    return text


def _at(event: Any, reason: str) -> YAMLTextError:
    mark = event.start_mark
    return YAMLTextError(f"line {mark.line + 1} column {mark.column + 1}: {reason}")


def _described(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1} column {mark.column + 1}: " if mark is not None else ""
    return f"{where}{problem}"[:300]
