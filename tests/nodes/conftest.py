"""Shared helpers: registries and default registries that no test leaves changed."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plaita.nodes import registry as registry_module
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.registry import NodeRegistry


@pytest.fixture
def registry() -> NodeRegistry:
    return NodeRegistry(BUILT_IN)


@pytest.fixture
def default_registry(monkeypatch: pytest.MonkeyPatch) -> NodeRegistry:
    """The process's default registry, fresh and thrown away after the test."""
    fresh = NodeRegistry(BUILT_IN)
    monkeypatch.setattr(registry_module, "_default", fresh)
    return fresh


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """write_module(name, source) makes a module importable during the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written: list[str] = []

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)
