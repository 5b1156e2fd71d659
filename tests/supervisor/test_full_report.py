"""CONTRACT "Signals": SIGUSR1 logs the full status and every executor's stack, and harms no step."""

from __future__ import annotations

import signal

from hosts import World, until


def test_SIGUSR1_logs_the_status_and_the_stack_of_every_executor(world: World) -> None:
    opened = world.folder / "open"
    world.chain("f", {"type": "t_report", "id": "deed", "file": str(opened)})
    world.chain("g", {"type": "t_report", "id": "deaf", "file": str(opened), "deaf": True})
    world.chain("h", {"type": "t_report", "id": "loud", "file": str(opened), "loud": 200_000})
    supervisor = world.serving(preload="reporting", executors=4)
    ids = [world.start(flow) for flow in ("f", "g", "h")]
    pids = {name: supervisor.busy(name)["pid"] for name in ("deed", "deaf", "loud")}
    until(lambda: "event=executor.output" in supervisor.text() and "blah" in supervisor.text(), "the loud one is loud")
    supervisor.signal(signal.SIGUSR1)

    def lines(event: str) -> list[str]:
        return [line for line in supervisor.text().splitlines() if f" event={event} " in line]

    for name in ("deed", "loud"):
        until(
            lambda name=name: [
                one for one in lines("executor.output") if f" pid={pids[name]} " in one and "waits_for_the_file" in one
            ],
            f"the stack of {name}",
        )
    idle = [row["pid"] for row in supervisor.executors() if row["execution_id"] is None]
    until(lambda: [one for one in lines("executor.output") if f"pid={idle[0]}" in one and "receive" in one], "the idle")
    assert [one for one in lines("status.no_stack") if f"pid={pids['deaf']}" in one]
    assert len(lines("status.executor")) == 4
    said = "\n".join(lines("status"))
    for name in ("verdict=serving", "answer=", "queue=", "counters=", "generations=", "disk="):
        assert name in said
    opened.touch()
    assert [world.wait(one)["status"] for one in ids] == ["completed"] * 3
    assert {row["restarts"] for row in supervisor.executors()} == {0}
