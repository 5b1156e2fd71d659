"""Helpers for tests, plaita's own and those of people who write nodes and flows: a runner that skips time, a real
server, and a proxy that fails on cue.

The pytest fixtures are in ``plaita.testing.fixtures``: put ``from plaita.testing.fixtures import *`` into a conftest.
Nothing of plaita's at run time imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plaita.testing.time_skipping import TimeSkippingRunner as TimeSkippingRunner
    from plaita.testing.trial import Trial as Trial
    from plaita.testing.trial import Waiting as Waiting

_EXPORTS = {
    "TimeSkippingRunner": "plaita.testing.time_skipping",
    "Trial": "plaita.testing.trial",
    "Waiting": "plaita.testing.trial",
}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'plaita.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
