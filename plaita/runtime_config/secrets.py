"""How secrets are shown: not at all. Used by whatever prints, logs or answers a setting (DECISIONS 34)."""

from __future__ import annotations

from typing import Any

from plaita.runtime_config.redis_url import mask_url
from plaita.runtime_config.settings import Setting

__all__ = ["mask_url", "shown"]


def shown(value: Any, setting: Setting) -> str:
    if setting.secret:
        return repr(mask_url(value)) if isinstance(value, str) and "://" in value else "(masked)"
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
