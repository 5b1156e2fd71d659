"""The entry of ``plaita-supervisor run``: settings in, exit code out (DECISIONS 31).

Sets up what must stand before there is a loop: logs, control socket, embedded server, subreaper; then one Supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import traceback
from collections.abc import Callable

import setproctitle

import plaita
from plaita.errors import ConfigError, PlaitaError
from plaita.ids import new_incarnation
from plaita.runtime_config import SupervisorConfig, effective, generations
from plaita.store.call import load_scripts
from plaita.supervisor import crash_points, logs, metrics
from plaita.supervisor.control import ControlServer, inode_of, listen, remove_socket
from plaita.supervisor.early_stop import EarlyStop, StoppedEarly, hear_no_more
from plaita.supervisor.embedded_hold import EmbeddedHold
from plaita.supervisor.life import EXIT_BUG, EXIT_CLEAN, EXIT_CONFIGURATION
from plaita.supervisor.stats import Stats
from plaita.supervisor.supervisor import Supervisor
from plaita.supervisor.temporary import sweep_dead_folders
from plaita.supervisor.trees import new_mark, sweep_dead_trees
from plaita.tenancy import set_default_tenant_once
from plaita.unix import spare
from plaita.unix.limits import problems
from plaita.unix.prctl import set_child_subreaper, set_dumpable


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def run(config: SupervisorConfig) -> int:
    """Run a supervisor until it is told to stop; the process's exit code."""
    stats = Stats()
    level = "WARNING" if config.quiet and config.log_level in ("DEBUG", "INFO") else config.log_level
    stop_logs = logs.set_up(level, lambda: stats.add("log_lines_dropped"))
    try:
        with EarlyStop() as early:
            return _run(config, stats, early)
    except StoppedEarly:
        logs.info("supervisor.exit", code=EXIT_CLEAN, reason="told to stop before it had begun")
        return EXIT_CLEAN
    except ConfigError as error:
        for fault in error.faults:
            logs.error("config.fault", fault=fault)
        return EXIT_CONFIGURATION
    except PlaitaError as error:
        logs.error("supervisor.fatal", reason=error)
        return EXIT_CONFIGURATION
    except Exception:  # noqa: BLE001 - the last line of defence: an exit code and a trace instead of silence
        logs.error("supervisor.bug", traceback=traceback.format_exc())
        return EXIT_BUG
    finally:
        stop_logs()


def _run(config: SupervisorConfig, stats: Stats, early: EarlyStop) -> int:
    set_dumpable(False)
    set_default_tenant_once()
    spare.keep()
    load_scripts()
    setproctitle.setproctitle(f"plaita: supervisor {config.instance_id} starting")
    ids = generations(config)
    logs.info(
        "config.effective",
        version=plaita.__version__,
        config_family=ids.config_family,
        config_generation=ids.config_generation,
        budget_generation=ids.budget_generation,
        **{name: value for name, value in effective(config).items() if value not in (None, [], "")},
    )
    for warning in config.warnings:
        logs.warning("config.warning", warning=warning)
    crash_points.arm(os.environ)
    if config.langfuse:
        logs.warning(
            "config.warning", warning="--langfuse: this build sends no traces; everything else runs as without it"
        )
    for problem in problems(config.executors):
        logs.warning("limits.low", problem=problem)
    with contextlib.ExitStack() as stack:
        with early.in_one_piece():
            sock = listen(config.socket)
            control_path = sock.getsockname()
            stack.callback(sock.close)
            opened = stack.enter_context(contextlib.ExitStack())
            opened.callback(remove_socket, control_path, inode_of(control_path))
        set_child_subreaper()
        killed = sweep_dead_trees()
        if killed:
            logs.warning("trees.swept", killed=killed)
        swept = sweep_dead_folders()
        if swept:
            logs.warning("temporary.swept", folders=swept)
        embedded = None
        if config.embedded is not None:
            embedded = EmbeddedHold(config.embedded)
            stack.callback(embedded.close)
        early.note_only()
        opened.pop_all()  # the control server takes its file away itself
        with asyncio.Runner(loop_factory=_loop_factory(config.loop)) as runner:
            code = runner.run(_serve(config, stats, embedded, sock, early))
    logs.info("supervisor.exit", code=code, socket=control_path)
    return code


async def _serve(
    config: SupervisorConfig, stats: Stats, embedded: EmbeddedHold | None, sock: socket.socket, early: EarlyStop
) -> int:
    redis_url = config.redis_url if embedded is None else embedded.url
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(loop, config, redis_url, new_incarnation(), new_mark(), stats, embedded)
    control = ControlServer(sock, supervisor.handlers())
    stop_metrics = None
    if config.metrics_port:
        stop_metrics = metrics.serve(config.metrics_host, config.metrics_port, supervisor.metrics)
    # What is alive by now stays: later collections need not look at it again and again.
    gc.collect()
    gc.freeze()
    await control.start()
    try:
        return await supervisor.run(stop=lambda: early.heard)
    finally:
        hear_no_more()
        await control.stop()
        if stop_metrics is not None:
            await asyncio.to_thread(stop_metrics)
