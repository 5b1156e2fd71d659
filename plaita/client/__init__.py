"""For programs that start and follow executions: ``Client`` (blocking) and ``AsyncClient``. The commands use it too.

Owns: what a caller may ask for, checked and worded; the JSON forms of CONTRACT. Must not: run node code, take leases.
Each name is loaded when first asked for: a command needs one of the two clients, never both.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plaita.client.aio import AsyncClient as AsyncClient
    from plaita.client.blocking import Client as Client
    from plaita.client.events import PublishedEvent as PublishedEvent
    from plaita.client.operations import StartedExecution as StartedExecution
    from plaita.client.replaying import Manner as Manner
    from plaita.client.replaying import Wanted as Wanted

_EXPORTS = {
    "AsyncClient": "plaita.client.aio",
    "Client": "plaita.client.blocking",
    "Manner": "plaita.client.replaying",
    "PublishedEvent": "plaita.client.events",
    "StartedExecution": "plaita.client.operations",
    "Wanted": "plaita.client.replaying",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'plaita.client' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
