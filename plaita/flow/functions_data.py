"""Lists and objects of ``$F``. Nothing that comes in is ever changed: what sounds like a change returns a changed copy
(FLOW-FORMAT rule 7), so ``pop`` and ``delete`` give what remains, not what they took out."""

from __future__ import annotations

from typing import Any

from plaita.flow.expr_limits import kind
from plaita.flow.functions_arguments import array, position, table, text, whole

_ABSENT = object()


def length(value: Any) -> int:
    if isinstance(value, (str, list, tuple, dict)):
        return len(value)
    raise TypeError(f"counts a text, a list or an object, not {kind(value)}")


def index(values: Any, item: Any) -> int:
    try:
        return array(values).index(item)
    except ValueError:
        raise ValueError("the list does not hold the value") from None


def part(value: Any, start: Any, stop: Any) -> Any:
    """``value[start:stop]`` of a list or text; null as bound means the end on that side."""
    first = None if start is None else whole(start)
    last = None if stop is None else whole(stop)
    if isinstance(value, (str, list)):
        return value[first:last]
    return array(value)[first:last]


def append(values: Any, item: Any) -> list[Any]:
    return [*array(values), item]


def extend(values: Any, more: Any) -> list[Any]:
    return [*array(values), *array(more)]


def insert(values: Any, place: Any, item: Any) -> list[Any]:
    result = list(array(values))
    result.insert(max(-len(result), min(len(result), whole(place))), item)
    return result


def remove(values: Any, item: Any) -> list[Any]:
    place = index(values, item)
    items = array(values)
    return [*items[:place], *items[place + 1 :]]


def reverse(values: Any) -> list[Any]:
    return array(values)[::-1]


def ordered(values: Any, key: Any = None, descending: Any = False) -> list[Any]:
    """Sorted copy, stable; ``key`` is the key of the objects, or the index of the lists, to sort by."""
    items = array(values)
    if key is None:
        return sorted(items, reverse=bool(descending))
    return sorted(items, key=lambda item: _member(item, key), reverse=bool(descending))


def _member(item: Any, key: Any) -> Any:
    if isinstance(key, str):
        return table(item).get(key)
    members = array(item)
    return members[position(members, key)]


def item_at(values: Any, place: Any) -> Any:
    items = array(values)
    return items[position(items, place)]


def without_item_at(values: Any, place: Any) -> list[Any]:
    items = list(array(values))
    del items[position(items, place)]
    return items


def with_item_at(values: Any, place: Any, item: Any) -> list[Any]:
    items = list(array(values))
    items[position(items, place)] = item
    return items


def keys(value: Any) -> list[str]:
    return list(table(value))


def values(value: Any) -> list[Any]:
    return list(table(value).values())


def items(value: Any) -> list[list[Any]]:
    return [[key, item] for key, item in table(value).items()]


def get(value: Any, key: Any, default: Any = None) -> Any:
    """The value at the key, or the default. Null has no keys, as in a path, so it gives the default too."""
    if value is None:
        return default
    return table(value).get(text(key), default)


def with_key(value: Any, key: Any, item: Any) -> dict[str, Any]:
    return {**table(value), text(key): item}


def without_key(value: Any, key: Any) -> dict[str, Any]:
    result = dict(table(value))
    if result.pop(text(key), _ABSENT) is _ABSENT:
        raise KeyError("the object has no such key")
    return result


def cleared(value: Any) -> Any:
    """An empty value of the same kind."""
    if isinstance(value, (list, tuple)):
        return []
    table(value)
    return {}
