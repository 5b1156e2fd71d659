"""``$F.now`` and ``$F.today``: the start of the step in UTC, never the host's clock or zone (FLOW-FORMAT rule 17)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from plaita.flow.expr_limits import MAX_TIME_FORMAT
from plaita.flow.functions_arguments import text

NOW_FORMAT = "%Y-%m-%d %H:%M:%S+00:00"
TODAY_FORMAT = "%Y-%m-%d"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_ALLOWED = frozenset("YmdHMSfyBbAajpIZzUWuwVGcxXDFTRe%")


def now(now_ms: int, form: Any = NOW_FORMAT) -> str:
    """The step's start, by default like ``2026-11-30 08:19:15+00:00``."""
    return _formatted(now_ms, form)


def today(now_ms: int, form: Any = TODAY_FORMAT) -> str:
    """The day of the step's start, by default like ``2026-11-30``."""
    return _formatted(now_ms, form)


def _formatted(now_ms: int, form: Any) -> str:
    pattern = text(form)
    if len(pattern) > MAX_TIME_FORMAT:
        raise ValueError(f"a time format has at most {MAX_TIME_FORMAT} characters")
    moment = _EPOCH + timedelta(milliseconds=now_ms)
    return _DIRECTIVE.sub(lambda match: _directive(moment, match.group(1)), pattern)


def _directive(moment: datetime, letter: str) -> str:
    # Widths and flags ("%999999d") and %s, which goes by the host's zone, are the platform's, not the language's.
    if letter not in _ALLOWED or not letter:
        raise ValueError(f"%{letter} is no part of a time format; there are {' '.join(sorted(_ALLOWED))}")
    return moment.strftime("%" + letter)
