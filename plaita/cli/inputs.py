"""What people hand to commands: JSON as text, as ``@FILE`` or on stdin, and definition files. Every read is bounded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from plaita import ids, jsontext
from plaita.errors import InputError

MAX_INPUT_BYTES = 64 * 1024 * 1024
MAX_DEFINITION_BYTES = 4 * 1024 * 1024


def read_bytes(source: str, what: str, limit: int) -> bytes:
    """The bytes of a file, ``-`` = stdin; at most ``limit``. Raises InputError naming ``what`` and the file."""
    shown = "stdin" if source == "-" else repr(source)
    try:
        if source == "-":
            if sys.stdin is None:
                raise InputError(f"{what}: stdin is closed")
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with open(source, "rb") as file:
                data = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"{what}: {shown} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL character in the name
        raise InputError(f"{what}: {shown} is no file name: {error}") from None
    if len(data) > limit:
        raise InputError(f"{what}: {shown} has more than {limit} bytes, the limit")
    return data


def read_json(argument: str | None, what: str, default: Any = None) -> Any:
    """The value of a ``JSON|@FILE|-`` argument; ``default`` when it was not given."""
    if argument is None:
        return default
    if argument == "-":
        text: bytes | str = read_bytes("-", what, MAX_INPUT_BYTES)
    elif argument.startswith("@"):
        text = read_bytes(argument[1:], what, MAX_INPUT_BYTES)
    else:
        text = argument
    try:
        return jsontext.loads(text)
    except jsontext.JSONTextError as error:
        shown = argument if len(argument) <= 60 else argument[:60] + "…"
        hint = "" if argument == "-" or argument.startswith("@") else "; give JSON, @FILE or - for stdin"
        raise InputError(f"{what}: {shown!r}: {error}{hint}") from None


def flow_id_for(source: str, given: str | None, in_definition: str | None) -> str:
    """``--id``, else the definition's own, else the file's name without its ending, else ``stdin``."""
    if given is not None:
        return ids.check_id(given, "--id")
    if in_definition is not None:
        return ids.check_id(in_definition, "flow_id")
    if source == "-":
        return "stdin"
    stem = Path(os.path.basename(source)).stem
    try:
        return ids.check_id(stem, "flow id from the file's name")
    except InputError as error:
        raise InputError(f"{error}; name it with --id") from None
