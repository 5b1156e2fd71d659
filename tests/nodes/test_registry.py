"""Which node types there are, and how plug-ins bring theirs (CONTRACT "Node API")."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import plaita
from plaita.errors import FlowDefinitionError, InputError
from plaita.nodes import registry as registry_module
from plaita.nodes.base import Node
from plaita.nodes.registry import NodeRegistry, PluginWarning, get_default_registry, load_preloads

WriteModule = Callable[[str, str], str]


class Plug(Node):
    node_type: ClassVar[str] = "plug"


def test_the_built_in_types(registry: NodeRegistry) -> None:
    assert registry.names() == [
        "approval",
        "assignment",
        "case",
        "delay",
        "end",
        "event",
        "http_callback",
        "if",
        "mock",
        "redis_queue",
        "start",
        "switch",
    ]
    assert registry.list_types() == registry.names()
    assert registry.get("gone") is None


def test_register_is_a_decorator_and_replaces(registry: NodeRegistry) -> None:
    @registry.register
    class Mine(Node):
        node_type = "mock"

    assert registry.get("mock") is Mine
    with pytest.raises(InputError, match="the node type 'mock' is already"):
        registry.register(Mine, override=False)


def test_a_copy_is_independent(registry: NodeRegistry) -> None:
    copy = registry.copy()
    copy.register(Plug)
    assert registry.get("plug") is None
    assert copy.unregister("plug") is Plug
    assert copy.unregister("plug") is None


class NoType(Node):
    pass


class BadType(Node):
    node_type: ClassVar[str] = "a b"


@pytest.mark.parametrize("cls", [NoType, BadType, object, "start", Node])
def test_what_is_no_node_class_is_refused(registry: NodeRegistry, cls: Any) -> None:
    with pytest.raises(InputError):
        registry.register(cls)


def test_parse_node_gives_a_prepared_node(registry: NodeRegistry) -> None:
    node = registry.parse_node({"type": "assignment", "id": "a", "output": "$INPUT.x", "outputType": {"type": "any"}})
    assert (node.id, node._compiled_of(node.output) is not None) == ("a", True)
    with pytest.raises(InputError, match="did you mean 'mock'"):
        registry.parse_node({"type": "mok", "id": "a"})
    with pytest.raises(FlowDefinitionError, match="output"):
        registry.parse_node({"type": "assignment", "id": "a", "output": "$F.nothing()"})
    with pytest.raises(ValueError, match="id"):
        registry.parse_node({"type": "mock"})


# -- preloads ------------------------------------------------------------------------------------------------


def test_a_preloaded_modules_node_classes_are_registered(
    default_registry: NodeRegistry, write_module: WriteModule
) -> None:
    name = write_module(
        "preload_plain",
        """
        from plaita import Node
        from plaita.nodes.mock import MockNode

        class Base(Node):
            '''Has no type of its own.'''

        class One(Base):
            node_type = "one"

        class Two(One):
            node_type = "two"

        class Same(One):
            '''Inherits its type: not another one.'''
        """,
    )
    assert load_preloads([name]) == {name: ["one", "two"]}
    assert default_registry.get("one").__name__ == "One"
    assert default_registry.get("mock").__module__ == "plaita.nodes.mock"


@pytest.mark.parametrize("function", ["register_all", "register"])
def test_a_preloaded_module_may_register_by_itself(
    default_registry: NodeRegistry, write_module: WriteModule, function: str
) -> None:
    name = write_module(
        f"preload_{function}",
        f"""
        from plaita import Node, get_default_registry

        class Hidden(Node):
            node_type = "hidden"

        def {function}():
            class Made(Node):
                node_type = "made"
            get_default_registry().register(Made)
        """,
    )
    assert load_preloads([name]) == {name: ["hidden", "made"]}


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("raise SystemExit(3)", "SystemExit: the code called sys.exit(3)"),
        ("def broken(:", "SyntaxError"),
        ("def register(): raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("from plaita import Node\nclass X(Node):\n    node_type = 'a b'", "InputError: node_type of X"),
    ],
)
def test_a_preload_that_fails_names_module_and_cause(
    default_registry: NodeRegistry, write_module: WriteModule, source: str, cause: str
) -> None:
    name = write_module("preload_broken", source)
    with pytest.raises(InputError) as caught:
        load_preloads([name])
    assert str(caught.value).startswith("the module 'preload_broken' cannot be preloaded: ")
    assert cause in str(caught.value)


def test_a_preload_that_is_not_there(default_registry: NodeRegistry) -> None:
    with pytest.raises(InputError, match="'no_such_module_here' cannot be preloaded: ModuleNotFoundError"):
        load_preloads(["no_such_module_here"])


# -- entry points ----------------------------------------------------------------------------------------------


class FakeEntry:
    def __init__(self, name: str, loaded: Any) -> None:
        self.name = name
        self.value = f"package:{name}"
        self._loaded = loaded

    def load(self) -> Any:
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        return self._loaded


def test_entry_points_register_and_a_broken_one_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    def register_more() -> None:
        get_default_registry().register(type("More", (Node,), {"node_type": "more", "__annotations__": {}}))

    entries = [
        FakeEntry("broken", ImportError("no such library")),
        FakeEntry("exits", SystemExit(1)),
        FakeEntry("nonsense", 3),
        FakeEntry("plug", Plug),
        FakeEntry("more", register_more),
    ]

    def entry_points(*, group: str) -> list[FakeEntry]:
        assert group == "plaita.nodes"
        return entries

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(registry_module, "_default", None)
    with pytest.warns(PluginWarning) as warned:
        found = get_default_registry()
    assert found.get("plug") is Plug
    assert "more" in found.names()
    texts = [str(each.message) for each in warned]
    assert any("'broken'" in text and "ImportError: no such library" in text for text in texts)
    assert any("'exits'" in text for text in texts)
    assert any("'nonsense'" in text for text in texts)


# -- lazy exports ---------------------------------------------------------------------------------------------


def test_importing_errors_loads_no_node_code() -> None:
    code = "import plaita.errors, sys; print(sorted(m for m in sys.modules if m.startswith(('plaita.', 'pydantic'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['plaita.errors']"


def test_the_package_exports_what_users_import() -> None:
    assert plaita.Node is Node
    assert plaita.get_default_registry is get_default_registry
    assert plaita.Flow.__name__ == "Flow"
    assert plaita.EventNode.is_suspending
    assert {"Node", "Flow", "Client", "AsyncClient"} <= set(dir(plaita))
    with pytest.raises(AttributeError, match="no attribute 'Nod'"):
        plaita.Nod  # noqa: B018
