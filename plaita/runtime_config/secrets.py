"""How secrets are shown: not at all. Used by whatever prints, logs or answers a setting (DECISIONS 34)."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from plaita.runtime_config.settings import Setting

_SECRET_QUERY_KEYS = frozenset({"password", "sentinel_password", "ssl_password"})


def mask_url(url: str) -> str:
    """The URL with every password in it replaced by ``***``. What cannot be read as a URL is not shown at all."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(masked)"
    credentials, at, host = parts.netloc.rpartition("@")
    user, colon, _password = credentials.partition(":")
    netloc = f"{user}:***@{host}" if colon else f"***@{host}" if at else host
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([(key, "***" if key.lower() in _SECRET_QUERY_KEYS else item) for key, item in pairs], safe="*/")
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}"


def shown(value: Any, setting: Setting) -> str:
    if setting.secret:
        return repr(mask_url(value)) if isinstance(value, str) and "://" in value else "(masked)"
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
