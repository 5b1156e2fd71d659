"""The seal of a stored credential: encrypted, authenticated, and good for one tenant and one name only. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from plaita import jsontext
from plaita.errors import InputError

MAX_BYTES = 64 * 1024


class SealError(InputError):
    """A stored credential cannot be opened: another key, another place, or changed bytes."""


def new_key() -> str:
    """A key for ``PLAITA_CREDENTIAL_KEY``."""
    return Fernet.generate_key().decode()


class Seal:
    """Seals and opens with Fernet (AES-128-CBC, HMAC-SHA256). ``keys``: the first seals, all open, so that a key can be
    replaced. Raises InputError for what is no key; no message holds one."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise InputError("credential_key: none is set; make one with plaita.credentials.new_key()")
        try:
            self._fernet = MultiFernet([Fernet(key.strip()) for key in keys])
        except ValueError:
            raise InputError("credential_key: right is a Fernet key, 32 bytes in URL-safe base64") from None

    @classmethod
    def of(cls, keys: str | None) -> Seal:
        """From the setting ``credential_key``: keys separated by commas."""
        return cls([key for key in (keys or "").split(",") if key.strip()])

    def close(self, tenant: str, name: str, values: dict[str, Any]) -> bytes:
        """The values sealed for this place. Raises InputError: no JSON, or over 64 KiB."""
        try:
            text = jsontext.dumps({"tenant": tenant, "name": name, "values": values})
        except jsontext.JSONValueError as error:
            raise InputError(f"credential {name!r}: {error}") from None
        if len(text) > MAX_BYTES:
            raise InputError(f"credential {name!r}: {len(text)} bytes; at most {MAX_BYTES}")
        return self._fernet.encrypt(text)

    def open(self, tenant: str, name: str, sealed: bytes) -> dict[str, Any]:
        """What was sealed for this very place. Raises SealError."""
        try:
            found = jsontext.loads(self._fernet.decrypt(sealed))
        except (InvalidToken, jsontext.JSONTextError):
            raise SealError(f"credential {name!r}: it was sealed with another key, or changed since") from None
        if not isinstance(found, dict) or (found.get("tenant"), found.get("name")) != (tenant, name):
            raise SealError(f"credential {name!r}: it was sealed for another tenant or name")
        values = found.get("values")
        return values if isinstance(values, dict) else {}
