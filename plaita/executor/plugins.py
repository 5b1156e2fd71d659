"""Plug-ins in the template: imported once, one by one, and watched for threads.

A fork copies only the thread that forks, so a template with a second thread would hand its executors locks that nobody
opens (trouble 19). A plug-in whose import starts threads is therefore *late*: loaded by each executor after the fork.
The threads are there once the import has run; the template then begins anew by exec with the plug-in marked as late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plaita.nodes.registry import NodeRegistry, entry_point_names, load_preloads, start_default_registry
from plaita.unix.processes import thread_count

ENTRY_POINT_PREFIX = "entry point "


@dataclass(frozen=True, slots=True)
class LatePlugin:
    """``name``: a module, or ``entry point <name>``. ``types``: the node types it had registered when it was tried."""

    name: str
    reason: str
    types: tuple[str, ...]


class StartsThreads(Exception):
    """The import of ``plugin`` has left threads in this process, which may not fork any more."""

    def __init__(self, plugin: LatePlugin) -> None:
        super().__init__(f"{plugin.name}: {plugin.reason}")
        self.plugin = plugin


def load_plugins(
    preload: Sequence[str], late: Sequence[LatePlugin], importing: Callable[[str], object]
) -> NodeRegistry:
    """Load entry points, then ``preload`` modules, those in ``late`` left out; ``importing(name)`` before each.

    Raises InputError for a preload that does not import, StartsThreads for the first plug-in that starts threads.
    """
    registry = start_default_registry()
    left_out = {plugin.name for plugin in late}
    for name in entry_point_names():
        shown = ENTRY_POINT_PREFIX + name
        if shown not in left_out:
            before = set(registry.names())
            importing(shown)
            registry.discover({name})
            _check_threads(shown, registry, before)
    for module in preload:
        if module not in left_out:
            before = set(registry.names())
            importing(module)
            load_preloads([module], registry)
            _check_threads(module, registry, before)
    return registry


def load_late(late: Sequence[LatePlugin], registry: NodeRegistry) -> None:
    """In an executor, after the fork: load what was left out. Raises InputError for one that does not import now."""
    for plugin in late:
        if plugin.name.startswith(ENTRY_POINT_PREFIX):
            registry.discover({plugin.name.removeprefix(ENTRY_POINT_PREFIX)})
        else:
            load_preloads([plugin.name], registry)


def _check_threads(name: str, registry: NodeRegistry, before: set[str]) -> None:
    threads = thread_count()
    if threads <= 1:
        return
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    listed = f" ({', '.join(sorted(names))})" if names else ""
    reason = f"its import starts {threads - 1} thread{'s' if threads > 2 else ''}{listed}"
    raise StartsThreads(LatePlugin(name, reason[:500], tuple(sorted(set(registry.names()) - before))))
