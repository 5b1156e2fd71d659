"""plaita runs durable flows on bare-metal hosts.

What users import stands here, loaded when first asked for: importing ``plaita.errors`` pulls in nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plaita.local import Flow as Flow
    from plaita.nodes.base import EventNode as EventNode
    from plaita.nodes.base import Node as Node
    from plaita.nodes.callbacks import CallbackEvent as CallbackEvent
    from plaita.nodes.callbacks import FlowCallback as FlowCallback
    from plaita.nodes.callbacks import register_callback as register_callback
    from plaita.nodes.callbacks import unregister_callback as unregister_callback
    from plaita.nodes.registry import get_default_registry as get_default_registry

__version__ = "0.1.0"

_EXPORTS = {
    "AsyncClient": "plaita.client",
    "CallbackEvent": "plaita.nodes.callbacks",
    "Client": "plaita.client",
    "EventNode": "plaita.nodes.base",
    "Flow": "plaita.local",
    "FlowCallback": "plaita.nodes.callbacks",
    "Node": "plaita.nodes.base",
    "get_default_registry": "plaita.nodes.registry",
    "register_callback": "plaita.nodes.callbacks",
    "unregister_callback": "plaita.nodes.callbacks",
}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'plaita' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
