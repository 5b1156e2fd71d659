from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import ExecutorHandle, TemplateHandle


@pytest.fixture
def template() -> Iterator[TemplateHandle]:
    """A template of the test's own: it may be killed, starved or left."""
    handle = TemplateHandle()
    yield handle
    handle.close()


@pytest.fixture(scope="module")
def shared_template() -> Iterator[TemplateHandle]:
    handle = TemplateHandle()
    yield handle
    handle.close()


@pytest.fixture
def executor(shared_template: TemplateHandle) -> Iterator[ExecutorHandle]:
    """A fresh executor of a template that others use too."""
    handle = shared_template.spawn()
    yield handle
    handle.close()
    shared_template.executors.remove(handle)
