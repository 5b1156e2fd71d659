"""Ids: which are accepted, how they stand in keys, and how new ones are made (DECISIONS 18, FLOW-FORMAT 20)."""

from __future__ import annotations

import os
import re
import unicodedata
import uuid

from plaita.errors import InputError

MAX_ID_LENGTH = 200
_PUNCTUATION = frozenset("._-:/")
_PLAIN = re.compile(rf"[A-Za-z0-9._:/-]{{1,{MAX_ID_LENGTH}}}", re.ASCII)


def check_id(value: object, what: str) -> str:
    """The id in NFC, or InputError naming ``what``, the value and the first offending character.

    1 to 200 characters: letters and digits of any script (with their combining marks) and ``. _ - : /``.
    """
    if type(value) is str and _PLAIN.fullmatch(value) is not None:
        return value  # the common case: ASCII is its own NFC
    if not isinstance(value, str):
        raise InputError(f"{what}: {value!r} is not a text; an id is 1 to {MAX_ID_LENGTH} characters of text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what}: {value!r} holds a lone surrogate at position {error.start}, which no UTF-8 text can carry"
        ) from None
    text = unicodedata.normalize("NFC", value)
    if not 1 <= len(text) <= MAX_ID_LENGTH:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise InputError(f"{what}: {shown!r} has {len(text)} characters; an id has 1 to {MAX_ID_LENGTH}")
    for position, character in enumerate(text):
        if character in _PUNCTUATION or unicodedata.category(character)[0] in "LN":
            continue
        if position and unicodedata.category(character) in ("Mn", "Mc"):
            continue  # marks that belong to the letter before, as in many Indic scripts
        raise InputError(
            f"{what}: {text!r} has the character {character!r} (U+{ord(character):04X}) at position {position}; "
            "letters, digits and . _ - : / are allowed"
        )
    return text


def person(name: str) -> str:
    """A person's name as it is compared: in NFC, without blanks around it. So one name is one approver, whoever wrote
    it on which keyboard."""
    return unicodedata.normalize("NFC", name).strip()


def key_part(value: str) -> str:
    """An id as it stands in a Redis key: no two ids share a key, and ``:`` only separates. Lua twin:
    lib/key_part.lua."""
    text = unicodedata.normalize("NFC", value)
    return text.replace("%", "%25").replace(":", "%3A").replace("{", "%7B").replace("}", "%7D")


def new_execution_id() -> str:
    """32 hex digits, from the system's random source."""
    return uuid.UUID(bytes=os.urandom(16), version=4).hex


def new_incarnation() -> str:
    """16 hex digits that name one life of one supervisor process (DECISIONS 1)."""
    return os.urandom(8).hex()


def new_nonce() -> str:
    """16 hex digits: the random half of a fence token (DECISIONS 2)."""
    return os.urandom(8).hex()
