"""Plug-ins at their import: threads, failures, ends (trouble 19)."""

from __future__ import annotations

import pytest
from harness import TemplateHandle, chain

from plaita.ipc.template_socket import Importing
from plaita.unix.processes import process_stat


@pytest.mark.parametrize("order", [("starts_thread", "nodes_for_tests"), ("nodes_for_tests", "starts_thread")])
def test_a_plugin_that_starts_a_thread_is_loaded_after_the_fork(order: tuple[str, ...]) -> None:
    template = TemplateHandle(preload=order)
    ready = template.wait_ready()
    assert list(ready.late_modules) == ["starts_thread"]
    assert ready.late_modules["starts_thread"] == "its import starts 1 thread (doubler)"
    assert {"double", "try"} <= set(ready.node_types)
    assert ready.pid == template.pid
    for slot in range(2):
        executor = template.spawn(slot)
        flow = chain({"type": "double", "amount": 21})
        for _ in range(2):
            answer = executor.run(flow)
            assert (answer.kind, answer.result, answer.retire) == ("advanced", b"42", None)
        assert executor.value("process")["threads"] == 2
        answer = executor.do("leave_thread")
        assert answer.retire == "1 more threads than before"
    with open(f"/proc/{template.pid}/cmdline", "rb") as file:
        assert file.read().rstrip(b"\0 ") == b"plaita: template gen=1"
    stat = process_stat(template.pid)
    assert stat is not None
    assert stat.session == template.pid
    template.close()


def test_a_preload_that_cannot_be_imported_is_named() -> None:
    template = TemplateHandle(preload=("nodes_for_tests", "fails_on_import"))
    reason = template.wait_fatal()
    assert "fails_on_import" in reason
    assert "the licence server is away" in reason
    assert template.wait_exit().code == 78
    template.close()


def test_a_preload_that_does_not_exist_is_named() -> None:
    template = TemplateHandle(preload=("no_such_module_here",))
    assert "no_such_module_here" in template.wait_fatal()
    assert template.wait_exit().code == 78
    template.close()


def test_a_preload_that_ends_the_process_has_been_announced() -> None:
    template = TemplateHandle(preload=("nodes_for_tests", "ends_on_import"))
    announced = []
    while (received := template.next_message()) is not None:
        assert isinstance(received[0], Importing)
        announced.append(received[0].module)
    assert announced[-1] == "ends_on_import"
    assert template.wait_exit().code == 9
    template.close()
