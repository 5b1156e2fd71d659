"""The kinds of values that settings take: what each accepts, and the words for what it refuses.

Every check raises ValueError with a reason that reads on after "the value: ". Must not look at the host or environment.
"""

from __future__ import annotations

import os
import re
import unicodedata
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from plaita.errors import InputError
from plaita.ids import check_id


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a yes/no value where a number belongs")
    return value


def check_identity(value: str) -> str:
    """A name that hosts must agree on, or ValueError: not empty, no spaces, no characters a reader cannot see."""
    if not value:
        raise ValueError("it is empty")
    if len(value) > 512:
        raise ValueError(f"it has {len(value)} characters; at most 512")
    for position, character in enumerate(value):
        if character.isspace() or unicodedata.category(character)[0] in "CZ":
            raise ValueError(f"it has the character U+{ord(character):04X} at position {position}")
    return value


def check_epoch(value: str | None) -> str | None:
    """Of a deployment; without one nothing is compared, so an empty one would be a check that is off unseen."""
    return None if value is None else check_identity(value)


def check_instance_id(value: str) -> str:
    try:
        return check_id(value, "instance id")
    except InputError as error:
        raise ValueError(str(error)) from None


def check_key_prefix(value: str) -> str:
    check_identity(value)
    if re.search(r"[{}]", value) and not re.fullmatch(r"[^{}]*\{[^{}]+\}[^{}]*", value):
        raise ValueError("its braces are no Redis hash tag")
    return value


def as_module_list(value: Any) -> Any:
    if isinstance(value, str):
        return [part for part in (item.strip() for item in re.split(r"[,\s]+", value)) if part]
    return value


def _module_name(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(f"{value!r} is no module name")
    return value


def _repo_name(value: str) -> str:
    name = value.rstrip("/").rpartition("/")[2]
    if name in ("", ".", "..") or not name.isprintable():
        raise ValueError(f"{value!r} names no repository")
    return name


def as_name_list(value: Any) -> Any:
    """Names between commas; they may hold spaces."""
    if isinstance(value, str):
        return [part for part in (item.strip() for item in value.split(",")) if part]
    return value


def as_log_level(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def as_duration_ms(value: Any) -> Any:
    """``off``, milliseconds, or an ISO 8601 duration, as for the timeouts of a flow. None = off."""
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "off", "0")) or value == 0:
        return None
    if isinstance(value, str) and not value.strip().isdecimal():
        try:
            seconds = TypeAdapter(timedelta).validate_python(value.strip()).total_seconds()
        except ValidationError:
            raise ValueError("no duration") from None
        return int(seconds * 1000)
    return value


def _absolute(value: str) -> str:
    if not value:
        raise ValueError("it is empty")
    if "\0" in value:
        raise ValueError("it holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("it is no UTF-8 text, which status, logs and the registry could not carry")
    return os.path.abspath(os.path.expanduser(value))


Whole = Annotated[int, BeforeValidator(_not_a_bool)]
Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_not_a_bool)]


def _server_place(value: str) -> str:
    """``host:port`` or the absolute path of a unix socket; of a host name case says nothing."""
    if value.startswith("/"):
        return value
    host, colon, port = value.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in bare and bare == host) or "*" in bare or "@" in bare or "/" in bare:
        raise ValueError("no host:port, such as queues.example:6379 or [::1]:6379, and no absolute path")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65535):
        raise ValueError("the port is no number from 1 to 65535")
    return f"{host.lower()}:{int(port)}"


def check_callback_secret(value: str | None) -> str | None:
    """Long enough that nobody finds it by trying."""
    if value is not None and (len(value) < 16 or len(value) > 1024 or not value.isprintable()):
        raise ValueError("it is no text of 16 to 1024 printable characters")
    return value


def check_base_url(value: str) -> str:
    """``http://`` or ``https://``, a host, perhaps a path; without the slash at its end."""
    found = re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~/-]*)?", value)
    if found is None or len(value) > 1000:
        raise ValueError("no http:// or https:// URL with a host")
    return value.rstrip("/")


ServerPlace = Annotated[str, AfterValidator(_server_place)]
Identity = Annotated[str, AfterValidator(check_identity)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
ModuleName = Annotated[str, AfterValidator(_module_name)]
RepoName = Annotated[str, AfterValidator(_repo_name)]
