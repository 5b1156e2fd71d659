"""docs/reliability.md names a test for each promise: each must exist, and be a function that pytest finds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"


def _named() -> list[str]:
    return sorted(set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8"))))


@cache
def _defined() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))


def test_the_page_names_tests() -> None:
    assert len(_named()) > 30


@pytest.mark.parametrize("name", _named())
def test_the_named_test_exists(name: str) -> None:
    wanted = re.compile(rf"^(async )?def {name}\(|^class {name}|\b{name} = ", re.MULTILINE)
    assert wanted.search(_defined())
