"""docs/flow-format.md keeps up with the code: fields, rules, limits and later types."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plaita.flow.durations import parse_timeout
from plaita.flow.fields import Part, camel
from plaita.flow.limits import DEFAULT_LIMITS
from plaita.flow.model import LATER_TYPES, BaseNode, Property, RecoverableErrorHandler, parse_flow
from plaita.flow.parse import _FlowFields
from plaita.flow.properties import TYPES
from plaita.nodes.assignment import UpstreamItem
from plaita.nodes.builtin import BUILT_IN
from plaita.nodes.case import Case
from plaita.nodes.registry import NodeRegistry
from plaita.nodes.switch import SwitchBranch

PAGE = (Path(__file__).parents[2] / "docs" / "flow-format.md").read_text(encoding="utf-8")
CODE_WORDS = {word for span in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"[A-Za-z_]+", span)}


@pytest.mark.parametrize(
    "model",
    [_FlowFields, BaseNode, RecoverableErrorHandler, Property, UpstreamItem, SwitchBranch, Case, *BUILT_IN],
    ids=lambda model: model.__name__,
)
def test_every_field_is_on_the_page(model: type[Part]) -> None:
    assert [name for name in model.model_fields if camel(name) not in CODE_WORDS and name not in CODE_WORDS] == []


def test_every_type_has_its_section() -> None:
    assert [cls.node_type for cls in BUILT_IN if f"\n### `{cls.node_type}`\n" not in PAGE] == []
    assert LATER_TYPES <= CODE_WORDS
    assert set(TYPES) <= CODE_WORDS


def test_every_rule_has_its_row() -> None:
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == list(range(1, 21))


def test_the_limits_are_those_of_the_code() -> None:
    mib = 1024 * 1024
    row = next(line for line in PAGE.splitlines() if line.startswith("| 19 |"))
    assert f"definition {DEFAULT_LIMITS.flow_text // mib} MiB" in row
    assert f"{DEFAULT_LIMITS.nodes:,} nodes" in row
    assert f"nesting {DEFAULT_LIMITS.depth};" in row
    assert f"result {DEFAULT_LIMITS.node_output // mib} MiB" in row
    assert f"execution {DEFAULT_LIMITS.context // mib} MiB" in row


def test_the_durations_of_the_page_are_read() -> None:
    section = PAGE.split("## Durations")[1].split("##")[0]
    written = [json.loads(span) for span in re.findall(r'`("[^`]*"|\d+)`', section)]
    assert len(written) >= 9
    for value in written:
        parse_timeout(value)


def test_the_examples_of_the_page_are_flows() -> None:
    examples: list[dict[str, Any]] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    assert examples
    for example in examples:
        assert parse_flow(example, NodeRegistry(BUILT_IN)).warnings == []
