"""Which node types there are: built-in ones, those of installed packages (entry points), and preloaded modules.

Owns registration and its rules. Importing plug-ins runs their code, so only processes without credentials do it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any, TypeVar

from plaita.errors import InputError, Problem
from plaita.flow.failure import described
from plaita.flow.model import BaseNode, Preparation
from plaita.flow.nearest import Nearest, shown
from plaita.ids import check_id
from plaita.nodes.builtin import BUILT_IN

ENTRY_POINT_GROUP = "plaita.nodes"

NodeClass = TypeVar("NodeClass", bound=type[BaseNode])


class PluginWarning(UserWarning):
    """An installed plug-in could not be loaded; the others were."""


class NodeRegistry:
    """Node classes by their ``node_type``."""

    def __init__(self, classes: Iterable[type[BaseNode]] = ()) -> None:
        self._classes: dict[str, type[BaseNode]] = {}
        for cls in classes:
            self.register(cls)

    def register(self, cls: NodeClass, *, override: bool = True) -> NodeClass:
        """Add a node class; usable as a decorator. A class of the same type is replaced, unless ``override`` is false
        (then InputError). Raises InputError for what is no node class, or has no legal ``node_type``."""
        if not isinstance(cls, type) or not issubclass(cls, BaseNode):
            raise InputError(f"{cls!r} is no subclass of plaita.Node")
        node_type = cls.__dict__.get("node_type") or cls.node_type
        if not isinstance(node_type, str) or not node_type:
            raise InputError(f"{cls.__qualname__} has no node_type; set it to the type that flows name")
        check_id(node_type, f"node_type of {cls.__qualname__}")
        if not override and node_type in self._classes:
            raise InputError(f"the node type {node_type!r} is already {self._classes[node_type].__qualname__}")
        self._classes[node_type] = cls
        return cls

    def unregister(self, node_type: str) -> type[BaseNode] | None:
        """Remove a type; its class, or None if there was none."""
        return self._classes.pop(node_type, None)

    def get(self, node_type: str) -> type[BaseNode] | None:
        """The class of a type, or None."""
        return self._classes.get(node_type)

    def names(self) -> list[str]:
        """All types, sorted."""
        return sorted(self._classes)

    def list_types(self) -> list[str]:
        """All types, sorted: the name the public engine has for :meth:`names`."""
        return self.names()

    def copy(self) -> NodeRegistry:
        """A registry of its own with the same classes."""
        return NodeRegistry(self._classes.values())

    def parse_node(self, raw: dict[str, Any]) -> BaseNode:
        """A single node from its JSON object, prepared. Raises InputError for an unknown type, FlowDefinitionError or
        pydantic's ValidationError (a ValueError) for wrong fields."""
        from plaita.errors import FlowDefinitionError

        node_type = raw.get("type")
        cls = self.get(node_type) if isinstance(node_type, str) else None
        if cls is None:
            hint = Nearest(self.names()).hint(str(node_type)[:100])
            raise InputError(f"unknown node type {shown(node_type)}{hint}")
        node = cls.model_validate({key: value for key, value in raw.items() if key != "type"})
        problems: list[Problem] = []
        node.prepare(Preparation("", problems, []))
        if problems:
            raise FlowDefinitionError(problems)
        return node

    def discover(self, names: Collection[str] | None = None) -> list[Problem]:
        """Register the classes of the installed plug-ins (entry point group ``plaita.nodes``) of these names, by
        default of all. One that cannot be loaded is warned of (PluginWarning) and listed in the answer; it hinders no
        other."""
        failures: list[Problem] = []
        for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            if names is not None and entry.name not in names:
                continue
            try:
                self._register_loaded(entry.load())
            except (KeyboardInterrupt, MemoryError):
                raise
            except BaseException as error:  # noqa: BLE001 - a broken plug-in may raise anything, sys.exit included
                reason = f"the plug-in {entry.name!r} ({entry.value}) cannot be loaded: {described(error)}"
                warnings.warn(reason, PluginWarning, stacklevel=2)
                failures.append(Problem(entry.name, reason))
        return failures

    def _register_loaded(self, loaded: Any) -> None:
        """What an entry point names: a node class, a module of them, or a function that registers."""
        if isinstance(loaded, type) and issubclass(loaded, BaseNode):
            self.register(loaded)
        elif isinstance(loaded, ModuleType):
            self.register_module(loaded)
        elif callable(loaded):
            loaded()
        else:
            raise InputError(f"it is a {type(loaded).__qualname__}: a node class, a module or a function is wanted")

    def register_module(self, module: ModuleType) -> list[str]:
        """Take in a preloaded module: call its ``register_all()``, else its ``register()``, then register the node
        classes defined in it that have a ``node_type`` of their own and are not registered yet. The new types."""
        before = set(self._classes)
        for name in ("register_all", "register"):
            function = module.__dict__.get(name)
            if callable(function):
                function()
                break
        for cls in list(module.__dict__.values()):
            if not (isinstance(cls, type) and issubclass(cls, BaseNode) and cls.__module__ == module.__name__):
                continue
            if cls.__dict__.get("node_type") and cls.node_type not in self._classes:
                self.register(cls)
        return sorted(set(self._classes) - before)


def entry_point_names() -> list[str]:
    """The names of the installed plug-ins, sorted; none is loaded."""
    return sorted({entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)})


_default: NodeRegistry | None = None


def start_default_registry() -> NodeRegistry:
    """The registry of this process with built-in types only: who calls this first loads the plug-ins one by one by
    ``discover``. The template does, to learn which of them start threads."""
    global _default
    if _default is None:
        _default = NodeRegistry(BUILT_IN)
    return _default


def get_default_registry() -> NodeRegistry:
    """The registry of this process: built-in types, and those of installed plug-ins, found at the first call."""
    global _default
    if _default is None:
        _default = NodeRegistry(BUILT_IN)
        _default.discover()
    return _default


def load_preloads(modules: Iterable[str], registry: NodeRegistry | None = None) -> dict[str, list[str]]:
    """Import each module and take in its node types; the new types by module. Raises InputError naming the module that
    cannot be imported, and why."""
    target = registry if registry is not None else get_default_registry()
    return {name: load_preload(name, target) for name in modules}


def load_preload(name: str, registry: NodeRegistry) -> list[str]:
    """Import one module and take in its node types; the new ones. Raises InputError naming the module and why."""
    try:
        return registry.register_module(importlib.import_module(name))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise InputError(f"the module {name!r} cannot be preloaded: {described(error)}") from error
