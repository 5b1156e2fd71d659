"""T1: entry points set the tenant once, messages set theirs; node code and commands see whose work they do."""

from __future__ import annotations

import contextvars
import uuid

import pytest

from plaita import tenancy
from plaita.cli import exits, main
from plaita.cli.options import Session, with_session
from plaita.cli.options import new_app as new_typer
from plaita.nodes.base import Node
from plaita.nodes.execution import Execution
from plaita.nodes.registry import NodeRegistry, get_default_registry
from plaita.server import FlowWorker
from plaita.storage import RedisExecutionStorage, RedisFlowStorage
from plaita.testing.server import Server


class WhoAmI(Node):
    node_type = "t1_whoami"
    node_name = "WhoAmI"

    def execute(self, execution: Execution) -> list[str]:
        return [tenancy.require_tenant("t1.node"), tenancy.tenant_source()]


class WhoAmIAsync(Node):
    node_type = "t1_whoami_async"
    node_name = "WhoAmIAsync"

    async def arun(self, execution: Execution) -> list[str]:
        return [tenancy.require_tenant("t1.node"), tenancy.tenant_source()]


@pytest.fixture
def registry() -> NodeRegistry:
    types = get_default_registry().copy()
    types.register(WhoAmI)
    types.register(WhoAmIAsync)
    return types


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def worker_of(tenant: str, server: Server, prefix: str, registry: NodeRegistry) -> FlowWorker:
    flows = RedisFlowStorage(server.url, key_prefix=prefix, tenant=tenant)
    flows.put_flow_definition(
        "who",
        {
            "nodes": [
                {"type": "start", "id": "start", "next": "me"},
                {"type": "t1_whoami", "id": "me", "next": "later"},
                {"type": "t1_whoami_async", "id": "later", "next": "end"},
                {"type": "end", "id": "end", "output": "$NODE"},
            ]
        },
    )
    return FlowWorker(
        RedisExecutionStorage(server.url, key_prefix=prefix, tenant=tenant),
        flows,
        registry=registry,
        queue_name=f"{prefix}:queue",
    )


@pytest.mark.parametrize("tenant", ["default", "acme", "租户"])
def test_T1_node_code_in_threads_works_for_the_tenant_of_its_message(
    plaita_server_process: Server, prefix: str, registry: NodeRegistry, tenant: str
) -> None:
    with worker_of(tenant, plaita_server_process, prefix, registry) as worker:
        output = worker.start_flow("who")["output"]
    assert output["me"] == [tenant, "explicit"]
    assert output["later"][0] == tenant


def test_T1_a_worker_that_runs_sets_the_default_once(
    plaita_server_process: Server, prefix: str, registry: NodeRegistry
) -> None:
    def run() -> tuple[str, str]:
        worker = worker_of("default", plaita_server_process, prefix, registry)
        worker.request_drain()
        with pytest.raises(Exception, match="stopped"):
            worker.run()
        return tenancy.current_tenant(), tenancy.tenant_source()

    assert contextvars.Context().run(run) == ("default", "explicit")


def test_T1_commands_work_for_the_tenant_that_was_said(
    plaita_server_process: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_CONFIG", "/dev/null")
    monkeypatch.setenv("PLAITA_REDIS_URL", plaita_server_process.url)
    seen_by_a_command: list[tuple[str, str]] = []
    app = new_typer("test", "Test.")

    @app.command("look")
    @with_session
    def look(session: Session) -> None:
        """Look."""
        before = (tenancy.current_tenant(), tenancy.tenant_source())
        session.client  # noqa: B018 - opened on first use
        seen_by_a_command.extend([before, (tenancy.current_tenant(), tenancy.tenant_source())])

    @app.command("other")
    def other() -> None:
        """Other."""

    def run() -> tuple[str, str]:
        assert exits.run_app(app, "test", ["look", "--tenant", "acme"]) == 0
        return tenancy.current_tenant(), tenancy.tenant_source()

    assert contextvars.Context().run(run) == ("default", "default"), "a command leaves no tenant behind"
    assert seen_by_a_command == [("default", "explicit"), ("acme", "explicit")]
    assert main.app is not app
