"""The supervisor: puts the parts together and performs what ``policy.lifecycle`` says. Decides nothing itself.

Everything that happens to it (signals, socket commands, parts that report) becomes an event of the machine, in one
order, on one loop. What it shows is ``view``'s, what it is asked ``commands``'.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import setproctitle

import plaita
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError
from plaita.policy import lifecycle
from plaita.policy.disk import DiskLine
from plaita.policy.lifecycle import Action, Event, State, Wish
from plaita.policy.service_manager import Facts
from plaita.policy.tenants import Verdict
from plaita.runtime_config import SupervisorConfig, effective, generations
from plaita.store import registry
from plaita.store.call import Answer, Value
from plaita.store.carriers import Entry
from plaita.store.runner_async import RunnerState
from plaita.supervisor import crash_points, logs, meeting
from plaita.supervisor.carries import Carries
from plaita.supervisor.commands import Commands
from plaita.supervisor.connection_log import ConnectionLog, WaitingLog
from plaita.supervisor.consumer import Consumer
from plaita.supervisor.control import Handler
from plaita.supervisor.disk_guard import DiskGuard
from plaita.supervisor.drain import Draining
from plaita.supervisor.embedded_hold import EmbeddedHold
from plaita.supervisor.failover import Failover
from plaita.supervisor.full_report import ask_for_stacks, log_status
from plaita.supervisor.gate import Gate
from plaita.supervisor.held import Held
from plaita.supervisor.housekeeping import Housekeeping
from plaita.supervisor.identity import own_identity, registry_status
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.leaving import Leaving
from plaita.supervisor.life import EXIT_BUG, EXIT_CONFIGURATION, Drain, Life
from plaita.supervisor.metrics import Snapshot
from plaita.supervisor.pool import Pool
from plaita.supervisor.reaping import Reaping
from plaita.supervisor.registrar import IdentityTaken, Registrar, why
from plaita.supervisor.reload import Reload
from plaita.supervisor.sender import Sender
from plaita.supervisor.service_manager import ServiceManager, facts_of
from plaita.supervisor.stats import Stats
from plaita.supervisor.template_handle import TemplateHandle, TemplateSettings
from plaita.supervisor.templates import Templates
from plaita.supervisor.temporary import TemporaryFolders
from plaita.supervisor.view import View, generation_ids
from plaita.supervisor.wiring import build_way, consumer_settings, keys_of, pool_settings, services_of
from plaita.supervisor.write_guard import WriteGuard
from plaita.unix.notify import Notifier
from plaita.unix.reaper import Exit


class Supervisor:
    """One life of one supervisor. ``run`` returns the exit code of DECISIONS 31."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: SupervisorConfig,
        redis_url: str,
        incarnation: str,
        tree_mark: str,
        stats: Stats,
        embedded: EmbeddedHold | None = None,
    ) -> None:
        self._loop = loop
        self._config = config
        self._stats = stats
        self._embedded = embedded
        self._life = Life(Drain(timeout_s=config.drain_timeout))
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._manager = ServiceManager(Notifier(), self._facts)
        self._missing = {"redis", "template", *(["registry"] if config.registry else [])}  # before READY
        ids = generations(config)
        holder = f"{config.instance_id}/{incarnation}"
        self._keys = keys_of(config)
        self._gate = Gate(self._capacity_changed)
        self._disk = DiskGuard(
            config.disk_guard_path,
            DiskLine(config.min_free_disk_gib, config.min_free_inodes_percent),
            self._gate,
            poll_s=config.disk_guard_poll_seconds,
            on_change=self._disk_changed,
        )
        self._runner = crash_points.runner_type()(
            redis_url, on_state=self._redis_state, on_refusal=lambda error: self._write_guard.refused(error)
        )
        self._write_guard = WriteGuard(
            self._runner, self._keys, self._gate, again=self._look_again, background=self._background
        )
        self._connection_log = ConnectionLog(loop)
        sender = Sender(self._runner, stats)
        self._reaping = Reaping(
            stats, claimed=self._claimed, known=self._known_children, uncertain=self._children_uncertain
        )
        self._temporary = TemporaryFolders(config.executor_user)
        self._templates = Templates(
            loop,
            TemplateSettings(
                tuple(config.preload), config.executor_user, tree_mark, self._temporary.open(), config.template_deadline
            ),
            on_spawned=lambda message, pidfd: self._pool.births.spawned(message, pidfd),
            on_spawn_failed=lambda message: self._pool.births.spawn_failed(message),
            on_ready=self._template_ready,
            on_death=self._template_died,
            on_fatal=self._template_fatal,
            on_reload_failed=lambda reason: self._reload.failed(reason),
            on_exit_hint=self._reaping.reap,
        )
        self._pool = Pool(
            loop,
            pool_settings(config),
            self._templates.current,
            stats,
            self._capacity_changed,
            self._reaping.reap,
            self._temporary,
            self._reaping.kill_strays,
        )
        self._reload = Reload(self._life, self._templates, self._pool, self._manager)
        self._keeper = LeaseKeeper(
            self._runner,
            self._keys,
            config.consumer_name,
            config.lease_ttl_seconds * 1000,
            stats,
            ask=self._ask_step,
            kill=self._kill_step,
            tick=self._templates.tick,
            fenced=lambda held: self._failover.token_differs(held),
            tenant_shut=lambda tenant, states: way.tenants.judge(tenant, states) is not Verdict.ACTIVE,
            watchdog=not config.disable_lease_watchdog,
        )
        self._failover = Failover(
            self._runner, self._keys, self._gate, stats, held=lambda: self._keeper.held, drop=self._keeper.drop
        )
        self._view = View(
            config,
            incarnation,
            ids,
            self._life,
            stats,
            self._keys,
            self._runner,
            self._gate,
            self._disk,
            self._pool,
            self._templates,
        )
        self._registrar = self._view.registrar = Registrar(
            self._runner,
            self._keys,
            config.instance_id,
            incarnation,
            own_identity(),
            {
                "plaita_version": plaita.__version__,
                "queue": config.queue_name,
                "consumer": config.consumer_name,
                "started_at": iso_utc(wall_ms()),
                "generations": generation_ids(ids),
                "config": effective(config),
            },
            stats,
            self._view.facts,
            self._view.refresh_queue,
        )
        way = build_way(
            config,
            ids,
            holder,
            self._keys,
            sender,
            self._pool,
            self._keeper,
            stats,
            leaving=lambda: self._life.leaving,
            holder_record=self._holder_record,
        )
        self._admission, self._entries, self._dispatch = way.admission, way.entries, way.dispatch
        self._view.admission, self._view.tenants, self._view.reload = way.admission, way.tenants, self._reload
        self._view.breaker = way.breaker
        self._carries = Carries(loop, self._carried)
        self._draining = Draining(
            loop,
            self._life,
            self._keeper,
            self._pool,
            self._carries,
            stats,
            timeout_s=config.drain_timeout,
            kill_grace_s=config.kill_grace,
            over=lambda: self.event(Event.DEADLINE),
        )
        self._consumer = Consumer(
            consumer_settings(config, ids, holder),
            self._keys,
            self._runner,
            stats,
            capacity=self._capacity,
            start=self._start_carry,
            give_back=self._give_back,
            in_hand=lambda: [*self._carries.in_hand(), *self._admission.others, *way.tenants.left],
            skipped=self._admission.tell_skipped,
            may_adopt=lambda: self._registrar.registered,
        )
        services = self._view.services = services_of(config, self._keys, self._runner, stats)
        self._housekeeping = Housekeeping(self._runner, self._keys, stats, config.dlq_max_len, way.tenants, services)
        self._leaving = Leaving(
            loop,
            self._runner,
            self._keys,
            config.consumer_name,
            self._gate,
            self._consumer,
            self._registrar,
            self._keeper,
            self._housekeeping,
            self._pool,
            self._templates,
            self._temporary,
            self._reaping,
        )

    # -- the machine ---------------------------------------------------------------------------------

    def event(self, event: Event) -> bool:
        """Feed the machine; False when it refuses."""
        life, before = self._life, self._life.state
        life.state, life.wish, actions = lifecycle.transition(life.state, life.wish, event)
        if life.state is not before:
            logs.info("supervisor.state", state=life.state.value, was=before.value, by=event.value)
        self._show_title()
        self._show_status()
        for action in actions:
            self._perform(action)
        if event is not Event.IDLE:
            self._idle_if_empty()
        return Action.REFUSE not in actions

    def _show_status(self) -> None:
        life = self._life
        self._gate.set("status", not life.leaving, value=life.state.value, limit="running", hint=life.status_hint)

    def _perform(self, action: Action) -> None:
        match action:
            case Action.OPEN_GATE:
                self._draining.undo()
                self._consumer.wake()
            case Action.CLOSE_GATE:
                self._draining.begin()
                self._background(self._unblock())
            case Action.ANNOUNCE:
                self._announce()
            case Action.SAY_READY:
                self._manager.ready()
                self._reload.started()
            case Action.SAY_STOPPING:
                self._reload.stop()
                self._manager.stopping()
            case Action.START_DEADLINE:
                self._draining.start_deadline()
            case Action.CANCEL_DEADLINE:
                self._draining.cancel_deadline()
            case Action.KILL_ALL:
                self._draining.kill()
            case Action.SHUT_DOWN:
                self._stopped.set()
            case Action.REFUSE:
                logs.warning("supervisor.refused", state=self._life.state.value, wish=self._life.wish.value)

    def _announce(self) -> None:
        self._background(self._registrar.announce())

    def _idle_if_empty(self) -> None:
        if not self._carries:
            self._loop.call_soon(self._say_idle)

    def _say_idle(self) -> None:
        if not self._carries and self._life.state is State.DRAINING:
            self.event(Event.IDLE)

    # -- carriers ------------------------------------------------------------------------------------

    def _capacity(self) -> int:
        """Free executors, less the carriers that are on their way to one."""
        if not self._gate.is_open:
            return 0
        on_their_way = len(self._carries) - self._pool.busy
        return max(0, self._pool.free - max(0, on_their_way))

    def _capacity_changed(self) -> None:
        # Called by the gate before the consumer exists, and by the pool on every idle executor.
        consumer = getattr(self, "_consumer", None)
        if consumer is not None:
            consumer.wake()
            self._reload.look()

    def _disk_changed(self, is_open: bool) -> None:
        if not is_open:
            self._background(self._unblock())  # of a read that waits, nothing more shall come
        self._announce()

    def _start_carry(self, entry: Entry) -> None:
        self._carries.start(entry, self._dispatch.carry(entry))
        self._life.carriers = len(self._carries)

    def _carried(self) -> None:
        self._life.carriers = len(self._carries)
        self._consumer.wake()
        if self._life.leaving:
            self._idle_if_empty()

    def _give_back(self, entry: Entry) -> None:
        self._leaving.first(self._background(self._entries.release(entry, leaving=self._life.leaving)))

    def _ask_step(self, held: Held, reason: str, grace_s: float | None) -> None:
        if held.executor is not None and held.running:
            self._pool.stop(held.executor, reason, grace_s)

    def _kill_step(self, held: Held, detail: str) -> None:
        if held.executor is not None and held.running:
            held.executor.stop_reason = held.executor.stop_reason or "lease"
            self._pool.kill(held.executor, detail)

    async def _holder_record(self, instance: str) -> tuple[str, str] | None:
        answer = await self._runner.run(registry.get(self._keys, instance))
        if not isinstance(answer, Value) or answer.value is None:
            return None
        return answer.value.incarnation, registry_status(answer.value.record)

    # -- children ----------------------------------------------------------------------------------------

    def _claimed(self, ended: Exit) -> bool:
        if self._templates.exited(ended):
            return True
        if self._embedded is not None and ended.pid == self._embedded.pid:
            logs.error("embedded.exited", pid=ended.pid, how=ended.describe())
            if self._life.state is not State.STOPPED:
                self._embedded.reopen()
            return True
        return self._pool.exited(ended)

    def _known_children(self) -> set[int]:
        return self._pool.known_pids() | self._templates.known_pids() | self._embedded_pid()

    def _children_uncertain(self) -> bool:
        opening = self._embedded is not None and self._embedded.opening
        return opening or self._pool.births.outstanding or self._life.state in (State.STOPPING, State.STOPPED)

    def _template_ready(self, replaced: bool) -> None:
        if replaced:
            self._pool.replace_all(self._templates.current)
        self._pool.template_ready()
        self._keeper.tell()
        if replaced:
            self._reload.stands()
        self._missing.discard("template")
        self._ready_if_complete()

    def _template_died(self, template: TemplateHandle) -> None:
        if template is self._templates.current:
            self._stats.add("template_restarts")
        self._pool.births.template_died(template)

    def _template_fatal(self, reason: str) -> None:
        logs.error("supervisor.fatal", reason=reason)
        self._life.ends_with(EXIT_CONFIGURATION)
        self.event(Event.FATAL)

    # -- Redis ---------------------------------------------------------------------------------------------

    def _redis_state(self, state: RunnerState) -> None:
        connected, error = state.connected, state.last_error
        self._connection_log.set(connected, error)
        self._gate.set(
            "redis",
            connected,
            value="connected" if connected else (error or "not connected"),
            hint="it tries again by itself; check the server and --redis-url",
        )
        if connected:
            self._failover.connected()
            self._look_again()
        elif self._embedded is not None:
            self._embedded.reopen()  # its process may be nobody's child, so nobody else would notice

    def _look_again(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is not None:
            consumer.look_again()
            self._registrar.try_again()

    async def _unblock(self) -> None:
        await self._runner.unblock()

    # -- life ----------------------------------------------------------------------------------------------

    async def run(self, *, stop: Callable[[], bool]) -> int:
        """Serve until told to stop. Returns the exit code. ``stop()``: it was, before the handlers here stood."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop_signal)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload.ask)
        self._loop.add_signal_handler(signal.SIGUSR1, self._log_status)
        if stop():
            self._on_stop_signal()
        self._templates.current.start()
        self._pool.start()
        starting = self._background(self._start())
        self._background(self._reaping.watch())
        self._background(self._disk.watch())
        self._background(self._manager.run())
        self._background(self._title())
        self._background(self._view.watch())
        await self._stopped.wait()
        starting.cancel()
        await self._shut_down()
        self.event(Event.IDLE)
        return self._life.exit_code

    async def _start(self) -> None:
        """Everything that needs Redis, in order; waits for it as long as it takes."""
        try:
            await self._meet_server()
            await self._disk.looked.wait()  # before anything is taken
            if self._config.registry:
                if await self._registrar.claim():
                    self._missing.discard("registry")
                self._registrar.start(registered=self._registered, taken=self._cannot_go_on)
        except (IdentityTaken, InputError) as error:
            self._cannot_go_on(error)
            return
        self._keeper.start()
        self._background(self._failover.run())
        self._housekeeping.start()
        self._missing.discard("redis")
        self._ready_if_complete()
        self._show_status()
        self._consuming = self._background(self._consumer.run())

    def _registered(self) -> None:
        """At last (ledger G3): others may send us work now, and what an earlier life of ours left is ours to take."""
        self._missing.discard("registry")
        self._ready_if_complete()
        self._look_again()

    def _cannot_go_on(self, error: Exception) -> None:
        logs.error("supervisor.fatal", reason=error)
        self._life.ends_with(EXIT_CONFIGURATION)
        self.event(Event.FATAL)

    async def _meet_server(self) -> None:
        waiting = WaitingLog()

        def waits(answer: Answer[Any]) -> None:
            if waiting.said == 0 and self._config.registry:
                self._registrar.failed(why(answer))
            waiting.say(type(answer).__name__, why(answer))

        info = await meeting.meet(self._runner, self._keys, waits, 0.25)
        self._life.server = f"{info.product} {info.version}"

    def _ready_if_complete(self) -> None:
        if not self._missing and self._life.state is State.STARTING:
            self.event(Event.READY)

    def _show_title(self) -> None:
        config = self._config
        setproctitle.setproctitle(
            f"plaita: supervisor {config.instance_id} {self._life.state.value} {self._pool.busy}/{config.executors}"
        )

    async def _title(self) -> None:
        """For ``ps``: what it is and how many executors are at work, a second late at most."""
        while True:
            self._show_title()
            await asyncio.sleep(1.0)

    def _facts(self) -> Facts:
        reload, answer = self._reload.words, self._view.answer()
        return facts_of(self._life, self._gate, self._templates, self._draining, self._missing, reload, answer)

    async def _shut_down(self) -> None:
        self._draining.cancel_deadline()
        consuming: asyncio.Task[None] | None = getattr(self, "_consuming", None)
        silent = self._draining.gave_up
        await self._leaving.leave(consuming, self._known_children, self._embedded_pid, silent=silent)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.close()
        self._connection_log.close()
        self._manager.close()
        self._draining.log_receipt()

    def _embedded_pid(self) -> set[int]:
        pid = self._embedded.pid if self._embedded is not None else None
        return set() if pid is None else {pid}

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._background_done)
        return task

    def _background_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logs.error("supervisor.bug", task=task.get_coro(), error=repr(task.exception()))
            self._life.ends_with(EXIT_BUG)
            self.event(Event.FATAL)

    # -- signals -------------------------------------------------------------------------------------------------

    def _on_stop_signal(self) -> None:
        if self._life.wish in (Wish.STOP, Wish.FORCE):
            self.event(Event.FORCED)
        else:
            self.event(Event.STOP_ASKED)

    def _log_status(self) -> None:
        self._background(self._log_status_later())

    async def _log_status_later(self) -> None:
        log_status(await self._view.status())
        ask_for_stacks(self._pool.executors)

    # -- what is asked of it -------------------------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """The commands of the control socket."""
        commands = Commands(
            self._view,
            self._life,
            self._gate,
            self._draining,
            self._reload,
            event=self.event,
            announce=self._announce,
        )
        return commands.handlers()

    def metrics(self) -> Snapshot:
        """For the metrics port."""
        return self._view.metrics()
