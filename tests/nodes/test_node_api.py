"""What authors of node types rely on (CONTRACT "Node API")."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import AliasChoices, BaseModel, Field

from plaita.flow.context import Context
from plaita.flow.engine import run_step
from plaita.flow.model import FlowDefinition, Part, parse_flow
from plaita.flow.outcome import Advanced, Failed
from plaita.nodes.base import Node, is_async, run_to_end
from plaita.nodes.execution import Execution, idempotency_key
from plaita.nodes.registry import NodeRegistry, load_preloads


def step(registry: NodeRegistry, node: dict[str, Any], *, flow_input: Any = None, **execution_fields: Any) -> Any:
    """The outcome of running the one node before the end."""
    flow = parse_flow(
        {"flow_id": "f", "nodes": [{"id": "n", "next": "e", **node}, {"type": "end", "id": "e"}]}, registry
    )
    context = Context(execution_id="x1", flow_id=flow.flow_id, input=flow_input or {}, global_context={"k": ["v"]})
    return run_step(
        flow,
        context,
        "n",
        call=lambda node: node.execute(Execution(node, context, **execution_fields)),
        now_ms=0,
    )


CONTRACT_EXAMPLE = """
from plaita import Node
class Greet(Node):
    node_type = "greet"; node_name = "Greet"
    greeting: str = "hello"                      # pydantic fields, camelCase accepted
    def execute(self, execution):
        return f"{self.greeting} {execution.evaluate(self.output)}"
"""


def test_the_example_of_the_contract_works_as_it_stands(
    default_registry: NodeRegistry, write_module: Callable[[str, str], str]
) -> None:
    load_preloads([write_module("contract_example", CONTRACT_EXAMPLE)])
    outcome = step(default_registry, {"type": "greet", "output": "$INPUT.name"}, flow_input={"name": "you"})
    assert outcome.result == "hello you"
    outcome = step(default_registry, {"type": "greet", "greeting": "hi", "output": "me"})
    assert outcome.result == "hi me"


class Inner(Part):
    some_value: int = 0


class Foreign(BaseModel):
    plain: int = 0


class Fields(Node):
    node_type: ClassVar[str] = "fields"
    two_words: int = 1
    max_items_per_page: int = 1
    aliased: int = Field(default=1, alias="other-name")
    choices: int = Field(default=1, validation_alias=AliasChoices("first", "second"))
    inner: Inner = Field(default_factory=Inner)
    inners: list[Inner] = Field(default_factory=list)
    foreign: Foreign | None = None

    def execute(self, execution: Execution) -> Any:
        return [self.two_words, self.max_items_per_page, self.aliased, self.choices, self.inner.some_value]


@pytest.mark.parametrize(
    "spelled",
    [
        {"two_words": 2, "max_items_per_page": 3, "aliased": 4, "choices": 5, "inner": {"some_value": 6}},
        {"twoWords": 2, "maxItemsPerPage": 3, "other-name": 4, "second": 5, "inner": {"someValue": 6}},
    ],
)
def test_rule_1_fields_of_plugins_in_both_spellings(registry: NodeRegistry, spelled: dict[str, Any]) -> None:
    registry.register(Fields)
    assert step(registry, {"type": "fields", **spelled}).result == [2, 3, 4, 5, 6]
    made = Fields(id="x", twoWords=2)  # type: ignore[call-arg]
    assert made.two_words == 2


def test_wrong_and_unknown_fields_of_plugins_are_placed_in_the_authors_spelling(registry: NodeRegistry) -> None:
    registry.register(Fields)
    definition = {
        "nodes": [
            {
                "type": "fields",
                "id": "n",
                "next": "e",
                "twoWords": "many",
                "inners": [{"someValue": []}],
                "foreign": {"plain": "x"},
            },
            {"type": "end", "id": "e"},
        ]
    }
    with pytest.raises(Exception, match="twoWords") as caught:
        parse_flow(definition, registry)
    assert [problem.place for problem in caught.value.problems] == [
        *("nodes[0].twoWords", "nodes[0].inners[0].someValue", "nodes[0].foreign.plain"),
    ]
    flow: FlowDefinition = parse_flow(
        {"nodes": [{"type": "fields", "id": "n", "next": "e", "tooWords": 1}, {"type": "end", "id": "e"}]}, registry
    )
    assert [str(warning) for warning in flow.warnings] == [
        "nodes[0].tooWords: unknown field, ignored; did you mean 'twoWords'?"
    ]


def test_plugins_may_name_their_fields_as_they_like(registry: NodeRegistry) -> None:
    names = ["title", "compiled", "timeout_ms", "label", "is_async", "value", "place", "code", "message", "retries"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cls = type(
            "Named",
            (Node,),
            {
                "node_type": "named",
                "__module__": __name__,
                "__annotations__": {"node_type": ClassVar[str], **dict.fromkeys(names, str)},
                **dict.fromkeys(names, "x"),
                "execute": lambda self, execution: [getattr(self, name) for name in names],
            },
        )
    registry.register(cls)
    assert step(registry, {"type": "named", "title": "t", "timeoutMs": "5"}).result == ["t", "x", "5", *["x"] * 7]


# -- the execution -----------------------------------------------------------------------------------------------


class Look(Node):
    node_type: ClassVar[str] = "look"

    def execute(self, execution: Execution) -> Any:
        execution.progress("half way")
        return {
            "execution_id": execution.execution_id,
            "flow_id": execution.flow_id,
            "node_id": execution.node_id,
            "tenant_id": execution.tenant_id,
            "attempt": execution.attempt,
            "cancelled": execution.cancel_event.is_set(),
            "global": execution.get_global_variable("k"),
            "no global": execution.get_global_variable("none"),
            "key": execution.idempotency_key,
            "evaluated": execution.evaluate(["$INPUT.a", "{% $NODE %}", 3]),
        }


def test_what_an_execution_tells(registry: NodeRegistry) -> None:
    registry.register(Look)
    notes: list[str] = []
    outcome = step(
        registry,
        {"type": "look"},
        flow_input={"a": 1},
        tenant_id="t1",
        attempt=3,
        visit=2,
        namespace="ns",
        on_progress=notes.append,
    )
    assert outcome.result == {
        "execution_id": "x1",
        "flow_id": "f",
        "node_id": "n",
        "tenant_id": "t1",
        "attempt": 3,
        "cancelled": False,
        "global": ["v"],
        "no global": None,
        "key": idempotency_key("ns", "x1", "n", 2),
        "evaluated": [1, "{}", 3],
    }
    assert notes == ["half way"]


def test_decisions_22_the_idempotency_key_names_one_visit() -> None:
    key = idempotency_key("plaita", "x1", "charge", 1)
    assert key == hashlib.sha256(b"6:plaita2:x16:charge1:1").hexdigest()
    others = [
        *(("plaita", "x1", "charge", 2), ("plaita", "x1", "charg", 1), ("plait", "ax1", "charge", 1)),
        *(("plaita", "x11", "charge", 1), ("plaita", "x1", "charge1", 1), ("plaita", "x", "1charge", 1)),
    ]
    assert len({key, *(idempotency_key(*other) for other in others)}) == 7


class Mutates(Node):
    node_type: ClassVar[str] = "mutates"

    def execute(self, execution: Execution) -> Any:
        for value in (execution.evaluate("$INPUT"), execution.evaluate(self.output), execution.get_state("s", {})):
            value["changed"] = True
        execution.get_global_variable("k").append("changed")
        return execution.evaluate(["$INPUT", "$GLOBAL.k"])


def test_node_code_cannot_change_what_others_see(registry: NodeRegistry) -> None:
    registry.register(Mutates)
    assert step(registry, {"type": "mutates", "output": "$INPUT"}, flow_input={"a": 1}).result == [{"a": 1}, ["v"]]


class BadState(Node):
    node_type: ClassVar[str] = "bad_state"

    def execute(self, execution: Execution) -> Any:
        execution.set_state("k", {1, 2})


def test_state_that_json_cannot_carry_is_refused(registry: NodeRegistry) -> None:
    registry.register(BadState)
    failed = step(registry, {"type": "bad_state"})
    assert isinstance(failed, Failed)
    assert "state['k']: a set is no JSON value" in failed.error.message


def test_evaluating_something_wrong_is_the_nodes_failure(registry: NodeRegistry) -> None:
    @registry.register
    class Dynamic(Node):
        node_type: ClassVar[str] = "dynamic"
        text: str = ""

        def execute(self, execution: Execution) -> Any:
            return execution.evaluate(self.text)

    failed = step(registry, {"type": "dynamic", "text": "$NOTHING.x"})
    assert (failed.error.cause, failed.error.node) == ("ExpressionError", "n")


def test_fields_named_as_expressions_are_checked_when_parsed(registry: NodeRegistry) -> None:
    @registry.register
    class Prompt(Node):
        node_type: ClassVar[str] = "prompt"
        expression_fields: ClassVar[tuple[str, ...]] = ("output", "prompt_text")
        prompt_text: str = ""

        def execute(self, execution: Execution) -> Any:
            assert self._compiled_of(self.prompt_text) is not None
            return execution.evaluate(self.prompt_text)

    assert step(registry, {"type": "prompt", "promptText": "{% $INPUT.a %}!"}, flow_input={"a": 1}).result == "1!"
    with pytest.raises(Exception, match="promptText"):
        step(registry, {"type": "prompt", "promptText": "$F.nothing()"})


# -- asynchronous nodes ------------------------------------------------------------------------------------------


class Later(Node):
    node_type: ClassVar[str] = "later"
    fails: str = ""

    async def arun(self, execution: Execution) -> Any:
        await asyncio.sleep(0)
        if self.fails == "exit":
            raise SystemExit(2)
        if self.fails:
            raise RuntimeError(self.fails)
        return [execution.node_id, threading.current_thread().name]


def test_a_node_with_arun_only_runs_on_a_loop_of_its_own(registry: NodeRegistry) -> None:
    registry.register(Later)
    assert is_async(Later)
    assert not is_async(Look)
    outcome = step(registry, {"type": "later"})
    assert isinstance(outcome, Advanced)
    assert outcome.result == ["n", "MainThread"]
    assert step(registry, {"type": "later", "fails": "no"}).error.message.endswith("RuntimeError: no")
    assert step(registry, {"type": "later", "fails": "exit"}).error.cause == "SystemExit"


def test_a_node_with_arun_runs_inside_a_running_loop_too(registry: NodeRegistry) -> None:
    registry.register(Later)

    async def main() -> Any:
        return step(registry, {"type": "later"}), step(registry, {"type": "later", "fails": "no"})

    outcome, failed = asyncio.run(main())
    assert outcome.result == ["n", "plaita-arun"]
    assert failed.error.cause == "RuntimeError"


def test_a_node_without_code_says_so(registry: NodeRegistry) -> None:
    @registry.register
    class Nothing(Node):
        node_type: ClassVar[str] = "nothing"

    failed = step(registry, {"type": "nothing"})
    assert "node type 'nothing' defines neither execute nor arun" in failed.error.message


def test_run_to_end_gives_and_raises() -> None:
    async def give() -> int:
        return 3

    async def fail() -> None:
        raise KeyError("x")

    assert run_to_end(give()) == 3
    with pytest.raises(KeyError):
        run_to_end(fail())
