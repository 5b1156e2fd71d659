"""How secrets are shown: not at all. Used by whatever prints, logs or answers a setting (DECISIONS 34)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from plaita.runtime_config.settings import Setting

_SECRET_QUERY_KEY = re.compile(r"pass|pwd|secret|token|auth|credential", re.IGNORECASE)
_PLAIN_USER = re.compile(r"[\w.+%-]*")


def mask_url(url: str) -> str:
    """The URL with every password in it replaced by ``***``. What cannot be read as a URL is not shown at all.

    An ``@`` behind the host means most likely that a password holds a character that should have been escaped: then
    all before it is not shown either.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(masked)"
    if not parts.scheme or "://" not in url:
        return "(masked)"
    rest = url.partition("://")[2]
    if "@" in rest[len(parts.netloc) :]:
        credentials, _, host = rest.rpartition("@")
        return f"{parts.scheme}://{_user(credentials)}***@{host}"
    credentials, at, host = parts.netloc.rpartition("@")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([(key, "***" if _SECRET_QUERY_KEY.search(key) else item) for key, item in pairs], safe="*/")
    netloc = f"{_user(credentials)}***@{host}" if at else host
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


def _user(credentials: str) -> str:
    """``user:``; nothing of what may be a password."""
    user, colon, _password = credentials.partition(":")
    return f"{user}:" if colon and _PLAIN_USER.fullmatch(user) else ""


def shown(value: Any, setting: Setting) -> str:
    if setting.secret:
        return repr(mask_url(value)) if isinstance(value, str) and "://" in value else "(masked)"
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
