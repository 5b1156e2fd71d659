"""Definition text (JSON or YAML) or a dict, to a dict of JSON values within the limits.

Owns the checks that come before any field is looked at: size, syntax, one key once, depth, values JSON can carry.
"""

from __future__ import annotations

from typing import Any

from plaita import jsontext
from plaita.errors import FlowDefinitionError, Problem
from plaita.flow import yamltext
from plaita.flow.limits import Limits
from plaita.flow.nearest import a_type, shown
from plaita.flow.places import deeper_than, worded

_BYTE_ORDER_MARK = "\ufeff"


def read_definition(definition: bytes | str | dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The raw flow. Raises FlowDefinitionError with a single problem."""
    if isinstance(definition, (bytes, bytearray, memoryview, str)):
        value = _read_text(_as_text(definition, limits))
    else:
        value = _copied(definition)
    if not isinstance(value, dict):
        raise refused("", f"a flow is an object with a list of nodes; this is {a_type(value)}: {shown(value)}")
    too_deep = deeper_than(value, limits.depth)
    if too_deep is not None:
        raise refused(worded(too_deep), f"nested deeper than {limits.depth} levels, the limit of a definition")
    return value


def refused(place: str, reason: str) -> FlowDefinitionError:
    """The error for a single problem."""
    return FlowDefinitionError([Problem(place, reason)])


def _as_text(definition: bytes | bytearray | memoryview | str, limits: Limits) -> str:
    data = bytes(definition) if not isinstance(definition, str) else None
    if data is not None and len(data) > limits.flow_text:
        raise _too_large(len(data), limits)
    try:
        text = data.decode("utf-8") if data is not None else str(definition)
        size = len(text.encode("utf-8"))
    except UnicodeDecodeError as error:
        raise refused("", f"not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}") from None
    except UnicodeEncodeError as error:
        raise refused("", f"not UTF-8: a lone surrogate at position {error.start}") from None
    if size > limits.flow_text:
        raise _too_large(size, limits)
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if not text.strip():
        raise refused("", "the text of the flow is empty")
    return text


def _too_large(size: int, limits: Limits) -> FlowDefinitionError:
    return refused("", f"the definition has {size} bytes; the limit is {limits.flow_text}")


def _read_text(text: str) -> Any:
    """JSON where it looks like JSON. Only what is no JSON at all is tried as YAML, whose flow style looks alike: a key
    that stands twice or a NaN stays refused."""
    looks_like_json = text.lstrip()[:1] in ("{", "[")
    if looks_like_json:
        try:
            return jsontext.loads(text, unique_keys=True)
        except jsontext.JSONTextError as error:
            json_error = error
        if not str(json_error).startswith("not JSON"):
            raise refused("", str(json_error)) from None
    try:
        return yamltext.loads(text)
    except yamltext.YAMLTextError as error:
        raise refused("", str(json_error if looks_like_json else f"neither JSON nor YAML: {error}")) from None


def _copied(definition: Any) -> Any:
    """A copy that shares nothing with the caller's objects, exactly what its JSON text would give."""
    try:
        return jsontext.loads(jsontext.dumps(definition, "flow"))
    except jsontext.JSONValueError as error:
        raise refused(error.path.removeprefix("flow").lstrip("."), error.reason) from None
    except RecursionError:
        raise refused("", f"nested deeper than {jsontext.MAX_DEPTH} levels") from None
