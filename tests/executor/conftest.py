from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import ExecutorHandle, TemplateHandle


@pytest.fixture
def template() -> Iterator[TemplateHandle]:
    handle = TemplateHandle()
    yield handle
    handle.close()


@pytest.fixture
def executor(template: TemplateHandle) -> ExecutorHandle:
    return template.spawn()
