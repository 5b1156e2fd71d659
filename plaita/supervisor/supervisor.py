"""The supervisor: puts the parts together and performs what ``policy.lifecycle`` says. Decides nothing itself.

Everything that happens to it (signals, socket commands, parts that report) becomes an event of the machine, in one
order, on one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import setproctitle

import plaita
from plaita import jsontext
from plaita.clock import boot_ms, iso_utc, wall_ms
from plaita.errors import InputError
from plaita.ipc.template_socket import Ready
from plaita.policy import lifecycle
from plaita.policy.generations import Fit, Stamps
from plaita.policy.lifecycle import Action, Event, State, Wish
from plaita.runtime_config import SupervisorConfig, effective, generations
from plaita.store import carriers, registry, server
from plaita.store.call import Unavailable, Value
from plaita.store.carriers import Entry, QueueStats
from plaita.store.keys import Keys
from plaita.store.runner_async import RunnerState
from plaita.supervisor import crash_points, logs, metrics, report
from plaita.supervisor.admission import Admission, AdmissionSettings
from plaita.supervisor.connection_log import ConnectionLog
from plaita.supervisor.consumer import Consumer, ConsumerSettings
from plaita.supervisor.control import Handler
from plaita.supervisor.dead_letters import DeadLetters
from plaita.supervisor.disk_guard import DiskGuard
from plaita.supervisor.dispatch import Dispatch, DispatchSettings
from plaita.supervisor.embedded_hold import EmbeddedHold
from plaita.supervisor.failover import Failover
from plaita.supervisor.flow_cache import FlowCache
from plaita.supervisor.gate import Gate
from plaita.supervisor.held import Held
from plaita.supervisor.housekeeping import Housekeeping
from plaita.supervisor.identity import own_identity
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.pool import Pool, PoolSettings
from plaita.supervisor.reaping import Reaping
from plaita.supervisor.registrar import IdentityTaken, Registrar
from plaita.supervisor.sender import Sender
from plaita.supervisor.settle import Settler, SettleSettings
from plaita.supervisor.stats import Stats
from plaita.supervisor.template_handle import TemplateHandle, TemplateSettings
from plaita.supervisor.write_guard import WriteGuard
from plaita.unix.notify import Notifier
from plaita.unix.reaper import Exit

EXIT_CLEAN = 0
EXIT_BUG = 70
EXIT_KILLED_WORK = 75
EXIT_CONFIGURATION = 78
CONTEXT_MAX_BYTES = 64 * 1024 * 1024
LEAVE_S = 2.0
METRICS_EVERY_S = 2.0


@dataclass(slots=True)
class Drain:
    """``since`` is epoch ms; the counts are those of the counters when it began."""

    since: int | None = None
    timeout_s: float = 0.0
    before: dict[str, int] = field(default_factory=dict)


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
        self._state = State.STARTING
        self._wish = Wish.NONE
        self._exit_code = EXIT_CLEAN
        self._started = boot_ms()
        self._stopped = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None  # of a drain that kills: on what waits for Redis alone
        self._drain = Drain(timeout_s=config.drain_timeout)
        self._carries: dict[asyncio.Task[None], Entry] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._givings: set[asyncio.Task[None]] = set()
        self._notifier = Notifier()
        self._node_types: list[str] = []
        self._generations = generations(config)
        self._server_text = ""
        self._last_queue: QueueStats | None = None
        self._turned = wall_ms()
        self._holder = f"{config.instance_id}/{incarnation}"
        self._keys = Keys(
            prefix=config.key_prefix, queue=config.queue_name, group=config.consumer_group, dlq=config.dlq_key
        )
        self._gate = Gate(self._capacity_changed)
        self._disk = DiskGuard(config.disk_guard_path, config.min_free_disk_gib)
        self._runner = crash_points.runner_type()(
            redis_url, on_state=self._redis_state, on_refusal=lambda error: self._write_guard.refused(error)
        )
        self._write_guard = WriteGuard(
            self._runner, self._keys, self._gate, again=self._look_again, background=self._background
        )
        self._connection_log = ConnectionLog(loop)
        self._sender = Sender(self._runner, stats)
        self._template_settings = TemplateSettings(tuple(config.preload), config.executor_user, tree_mark)
        self._template = self._new_template(0)
        self._coming: TemplateHandle | None = None  # of a reload: takes over once it is ready, or never
        self._old_templates: dict[int, TemplateHandle] = {}
        self._reaping = Reaping(
            stats, claimed=self._claimed, known=self._known_children, uncertain=self._children_uncertain
        )
        self._pool = Pool(
            loop,
            PoolSettings(
                size=config.executors,
                kill_grace_s=config.kill_grace,
                max_steps=config.max_steps_per_executor or None,
                max_rss_mib=config.max_executor_rss_mib or None,
            ),
            self._template,
            stats,
            self._capacity_changed,
            self._reaping.reap,
        )
        self._keeper = LeaseKeeper(
            self._runner,
            self._keys,
            config.consumer_name,
            config.lease_ttl_seconds * 1000,
            stats,
            ask=self._ask_step,
            kill=self._kill_step,
            tick=self._tick,
            fenced=lambda held: self._failover.token_differs(held),
            watchdog=not config.disable_lease_watchdog,
        )
        self._failover = Failover(
            self._runner, self._keys, self._gate, stats, held=lambda: self._keeper.held, drop=self._keeper.drop
        )
        self._registrar = Registrar(
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
                "generations": self._generation_ids(),
                "config": effective(config),
            },
            stats,
            self._facts,
        )
        self._dispatch = self._new_dispatch()
        self._consumer = Consumer(
            ConsumerSettings(
                consumer=config.consumer_name,
                holder=self._holder,
                claim_min_idle_ms=config.claim_min_idle_ms,
                read_block_ms=config.read_block_ms,
                config_family=self._generations.config_family,
                budget_generation=self._generations.budget_generation,
                adopt=config.registry,
            ),
            self._keys,
            self._runner,
            stats,
            capacity=self._capacity,
            start=self._start_carry,
            give_back=self._give_back,
            in_hand=self._entries_in_hand,
            skipped=self._skipped,
        )
        self._housekeeping = Housekeeping(self._runner, self._keys, stats, config.dlq_max_len)

    def _new_template(self, generation: int) -> TemplateHandle:
        return TemplateHandle(
            self._loop,
            self._template_settings,
            generation=generation,
            on_ready=self._template_ready,
            on_spawned=lambda message, pidfd: self._pool.spawned(message, pidfd),
            on_spawn_failed=lambda message: self._pool.spawn_failed(message),
            on_fatal=self._template_fatal,
            on_death=self._template_died,
            on_exit_hint=lambda: self._reaping.reap(),
        )

    def _new_dispatch(self) -> Dispatch:
        config = self._config
        dead_letters = DeadLetters(
            self._keys,
            self._sender,
            self._stats,
            maxlen=config.dlq_max_len,
            max_deliveries=config.max_deliveries,
            patience_ms=config.lease_ttl_seconds * 1000,
        )
        self._settler = Settler(
            SettleSettings(
                consumer=config.consumer_name,
                holder=self._holder,
                lease_ttl_ms=config.lease_ttl_seconds * 1000,
                max_deliveries=config.max_deliveries,
                retention_ms=int(config.execution_state_ttl_days * 86_400_000),
                dlq_maxlen=config.dlq_max_len,
                context_max_bytes=CONTEXT_MAX_BYTES,
            ),
            self._keys,
            self._sender,
            self._stats,
            dead_letters,
        )
        ids = self._generations
        self._admission = Admission(
            AdmissionSettings(
                ours=Stamps(ids.config_family, ids.budget_generation), max_age_ms=config.task_max_age_seconds * 1000
            ),
            self._keys,
            self._sender,
            self._settler,
            self._stats,
        )
        return Dispatch(
            DispatchSettings(
                holder=self._holder,
                lease_ttl_ms=config.lease_ttl_seconds * 1000,
                max_deliveries=config.max_deliveries,
                namespace=config.key_prefix,
                isolate=config.isolate,
                default_node_timeout_ms=config.default_node_timeout_ms,
                registry=config.registry,
                ask_liveness=not config.disable_holder_liveness,
            ),
            self._keys,
            self._sender,
            self._pool,
            self._keeper,
            FlowCache(self._sender),
            self._settler,
            dead_letters,
            self._admission,
            self._stats,
            leaving=lambda: self._state is not State.RUNNING,
            holder_record=self._holder_record,
        )

    # -- the machine ---------------------------------------------------------------------------------

    def event(self, event: Event) -> bool:
        """Feed the machine; False when it refuses."""
        before = self._state
        self._state, self._wish, actions = lifecycle.transition(self._state, self._wish, event)
        if self._state is not before:
            logs.info("supervisor.state", state=self._state.value, was=before.value, by=event.value)
        self._show_title()
        is_open = self._state is State.RUNNING
        self._gate.set("status", is_open, value=self._state.value, limit="running", hint=self._status_hint())
        for action in actions:
            self._perform(action)
        if event is not Event.IDLE:
            self._idle_if_empty()
        return Action.REFUSE not in actions

    def _status_hint(self) -> str:
        if self._state is State.DRAINING and self._wish is Wish.DRAIN:
            return "plaita-supervisor undrain"
        return "start it again" if self._state in (State.DRAINING, State.STOPPING, State.STOPPED) else "wait"

    def _perform(self, action: Action) -> None:
        match action:
            case Action.OPEN_GATE:
                self._exit_code = EXIT_CLEAN  # an earlier drain that was undone does not count
                self._drain = Drain(timeout_s=self._config.drain_timeout)
                self._consumer.wake()
            case Action.CLOSE_GATE:
                self._drain.since = wall_ms()
                self._drain.before = self._stats.snapshot()
                self._background(self._unblock())
            case Action.ANNOUNCE:
                self._background(self._registrar.announce())
            case Action.SAY_READY:
                self._notifier.ready(f"{self._state.value}, {self._config.executors} executors")
            case Action.SAY_STOPPING:
                self._notifier.stopping("draining")
                self._notifier.extend_timeout(int((self._drain.timeout_s + self._config.kill_grace + 10) * 1000))
            case Action.START_DEADLINE:
                self._start_deadline(self._drain.timeout_s)
            case Action.CANCEL_DEADLINE:
                self._cancel_deadline()
            case Action.KILL_ALL:
                self._kill_all()
            case Action.SHUT_DOWN:
                self._stopped.set()
            case Action.REFUSE:
                logs.warning("supervisor.refused", state=self._state.value, wish=self._wish.value)

    def _start_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self.event, Event.DEADLINE)

    def _cancel_deadline(self) -> None:
        for timer in (self._deadline, self._giving_up):
            if timer is not None:
                timer.cancel()
        self._deadline = self._giving_up = None

    def _kill_all(self) -> None:
        """Stop every running step; what only waits for Redis gets the grace too, then is given up."""
        working = [held for held in self._keeper.held if held.running and held.executor is not None]
        for held in working:
            if held.executor is not None:
                self._pool.stop(held.executor, "drain")
        if working or self._carries:
            self._exit_code = max(self._exit_code, EXIT_KILLED_WORK)
            logs.warning("drain.kill", running=len(working), carriers=len(self._carries))
        if self._giving_up is None:
            self._giving_up = self._loop.call_later(self._config.kill_grace + 1.0, self._abandon)

    def _abandon(self) -> None:
        for held in self._keeper.held:
            held.abandoned.set()
        self._giving_up = self._loop.call_later(2.0, self._cancel_carries)

    def _cancel_carries(self) -> None:
        for task in self._carries:
            task.cancel()

    def _idle_if_empty(self) -> None:
        if not self._carries:
            self._loop.call_soon(self._say_idle)

    def _say_idle(self) -> None:
        if not self._carries and self._state is State.DRAINING:
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

    def _entries_in_hand(self) -> list[str]:
        """What a reclaim must leave alone: what is being worked on, and what was found to be for other hosts."""
        return [*(f"{entry.stream} {entry.entry_id}" for entry in self._carries.values()), *self._admission.others]

    def _skipped(self, family: int, budget: int) -> None:
        for fit, count in ((Fit.OTHER_FAMILY, family), (Fit.OTHER_BUDGET, budget)):
            if count:
                self._admission.tell(fit, None, amount=count)

    def _start_carry(self, entry: Entry) -> None:
        task = self._loop.create_task(self._dispatch.carry(entry))
        self._carries[task] = entry
        task.add_done_callback(self._carried)

    def _carried(self, task: asyncio.Task[None]) -> None:
        self._carries.pop(task, None)
        self._consumer.wake()
        if self._state is not State.RUNNING:
            self._idle_if_empty()

    def _give_back(self, entry: Entry) -> None:
        giving = self._background(self._settler.release(entry, leaving=self._state is not State.RUNNING))
        self._givings.add(giving)
        giving.add_done_callback(self._givings.discard)

    def _ask_step(self, held: Held, reason: str, grace_s: float | None) -> None:
        if held.executor is not None and held.running:
            self._pool.stop(held.executor, reason, grace_s)

    def _kill_step(self, held: Held, detail: str) -> None:
        if held.executor is not None and held.running:
            held.executor.stop_reason = held.executor.stop_reason or "lease"
            self._pool.kill(held.executor, detail)

    def _tick(self, kill_at: int | None) -> None:
        self._template.tick(kill_at)
        for old in self._old_templates.values():
            old.tick(kill_at)  # until its last births are done, it alone knows of them

    async def _holder_record(self, instance: str) -> tuple[str, str] | None:
        answer = await self._runner.run(registry.get(self._keys, instance))
        if not isinstance(answer, Value) or answer.value is None:
            return None
        return answer.value.incarnation, registry_status(answer.value.record)

    # -- children ----------------------------------------------------------------------------------------

    def _claimed(self, ended: Exit) -> bool:
        if ended.pid == self._template.pid:
            self._template.exited(ended.describe())
            return True
        if self._coming is not None and ended.pid == self._coming.pid:
            self._coming.exited(ended.describe())
            return True
        old = self._old_templates.pop(ended.pid, None)
        if old is not None:
            old.exited(ended.describe())
            return True
        if self._embedded is not None and ended.pid == self._embedded.pid:
            logs.error("embedded.exited", pid=ended.pid, how=ended.describe())
            if self._state is not State.STOPPED:
                self._embedded.reopen()
            return True
        return self._pool.exited(ended)

    def _known_children(self) -> set[int]:
        known = self._pool.known_pids() | set(self._old_templates)
        coming = self._coming.pid if self._coming is not None else None
        return known | self._embedded_pid() | {pid for pid in (self._template.pid, coming) if pid is not None}

    def _children_uncertain(self) -> bool:
        opening = self._embedded is not None and self._embedded.opening
        return opening or self._pool.spawning or self._state in (State.STOPPING, State.STOPPED)

    def _template_ready(self, template: TemplateHandle, message: Ready) -> None:
        old = self._template
        if template is self._coming:
            self._template, self._coming = template, None
            self._pool.replace_all(template)
        elif template is not old:
            return  # a reload that was overtaken by another
        self._node_types = list(message.node_types)
        self._pool.template_ready()
        self._keeper.tell()
        if template is not old:
            self._retire_template(old)  # the new one stands and watches over all executors
            self._notifier.ready(self._state.value)
        self._ready_parts.discard("template")
        self._ready_if_complete()

    def _retire_template(self, old: TemplateHandle) -> None:
        if old.pid is not None:
            self._old_templates[old.pid] = old
        old.leave()

    def _template_died(self, template: TemplateHandle) -> None:
        if template is self._template:
            self._stats.add("template_restarts")
        self._pool.template_died(template)

    def _template_fatal(self, template: TemplateHandle, reason: str) -> None:
        if template is not self._template:
            if template is self._coming:
                logs.error("reload.failed", reason=reason, advice="all goes on as before; repair it and reload again")
                self._drop_coming()
                self._notifier.ready(self._state.value)
            return
        logs.error("supervisor.fatal", reason=reason)
        self._exit_code = EXIT_CONFIGURATION
        self._template.stop()
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
            self._notifier.status(f"{self._state.value}")
        else:
            if self._embedded is not None:
                self._embedded.reopen()  # its process may be nobody's child, so nobody else would notice
            self._notifier.status(f"Redis cannot be reached: {error}")

    def _look_again(self) -> None:
        consumer = getattr(self, "_consumer", None)
        if consumer is not None:
            consumer.look_again()

    async def _unblock(self) -> None:
        await self._runner.unblock()

    # -- life ----------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until told to stop. Returns the exit code."""
        self._ready_parts = {"redis", "template"}
        self._disk.probe(self._gate)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_stop_signal)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._loop.add_signal_handler(signal.SIGUSR1, self._log_status)
        self._template.start()
        self._pool.start()
        starting = self._background(self._start())
        self._background(self._reaping.watch())
        self._background(self._disk.watch(self._gate))
        self._background(self._watchdog())
        self._background(self._title())
        if self._config.metrics_port:
            self._background(self._refresh_metrics())
        await self._stopped.wait()
        starting.cancel()
        await self._shut_down()
        self.event(Event.IDLE)
        return self._exit_code

    async def _start(self) -> None:
        """Everything that needs Redis, in order; waits for it as long as it takes."""
        try:
            await self._meet_server()
            if self._config.registry:
                await self._registrar.register()
                self._registrar.start()
        except (IdentityTaken, InputError) as error:
            logs.error("supervisor.fatal", reason=error)
            self._exit_code = EXIT_CONFIGURATION
            self.event(Event.FATAL)
            return
        self._keeper.start()
        self._background(self._failover.run())
        self._housekeeping.start()
        self._ready_parts.discard("redis")
        self._ready_if_complete()
        self._consuming = self._background(self._consumer.run())

    async def _meet_server(self) -> None:
        told = 0
        while True:
            answer = await self._runner.run(server.server_info(self._keys))
            if isinstance(answer, Value):
                info = answer.value
                self._server_text = f"{info.product} {info.version}"
                if info.cluster_enabled:
                    raise InputError(
                        "redis_url: the server is a Redis Cluster, which plaita does not run on; "
                        "split by --key-prefix over several single servers instead"
                    )
                return
            if isinstance(answer, Unavailable) and answer.auth:
                raise InputError(f"redis_url: the server refuses the user or password ({answer.error})")
            if told % 20 == 0:
                logs.warning("redis.unreachable", answer=type(answer).__name__, error=getattr(answer, "error", ""))
            told += 1
            self._notifier.extend_timeout(30_000)
            await asyncio.sleep(0.25)

    def _ready_if_complete(self) -> None:
        if not self._ready_parts and self._state is State.STARTING:
            self.event(Event.READY)

    def _show_title(self) -> None:
        config = self._config
        setproctitle.setproctitle(
            f"plaita: supervisor {config.instance_id} {self._state.value} {self._pool.busy}/{config.executors}"
        )

    async def _title(self) -> None:
        """For ``ps``: what it is and how many executors are at work, a second late at most."""
        while True:
            self._show_title()
            await asyncio.sleep(1.0)

    async def _watchdog(self) -> None:
        interval = self._notifier.watchdog_ms
        if interval is None:
            return
        while True:
            self._notifier.watchdog()
            await asyncio.sleep(interval / 3000)

    async def _shut_down(self) -> None:
        """Parts in the order in which others need them; nothing of the tree is left at the end."""
        self._cancel_deadline()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop_consuming(), LEAVE_S)
        self._consumer.drop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._registrar.unregister(), LEAVE_S)
        await self._keeper.stop()
        await self._housekeeping.stop()
        await self._leave_group()
        self._pool.close()
        self._pool.kill_all()
        await self._end_templates()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.close()
        self._connection_log.close()
        self._notifier.close()

    async def _stop_consuming(self) -> None:
        """Nothing that was delivered to us at the last moment is left lying: others would have to wait for it."""
        consuming = getattr(self, "_consuming", None)
        if consuming is None:
            return
        consuming.cancel()
        if self._gate.conditions["redis"].open:
            await self._unblock()
            await self._consumer.finish()
            await asyncio.gather(*self._givings)

    async def _leave_group(self) -> None:
        """Names of consumers must not pile up where each start has a new one (KNOWN-TROUBLE 29). After all that reads
        or claims under it: each of those would make the name anew."""
        if not self._gate.conditions["redis"].open:
            return
        self._runner.drop("reader")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._runner.run(carriers.leave(self._keys, self._config.consumer_name)), LEAVE_S)

    async def _end_templates(self) -> None:
        """Closing its socket makes a template sweep its tree and go; one that cannot hear it (it imports, or hangs) has
        forked nothing that outlives the supervisor, and is killed."""
        self._drop_coming()
        for template in (self._template, *self._old_templates.values()):
            template.stop()
            if template.ready is None:
                template.kill()
        deadline = self._loop.time() + LEAVE_S
        while self._known_children() - self._embedded_pid() and self._loop.time() < deadline:
            self._reaping.reap()
            await asyncio.sleep(0.005)
        for template in (self._template, *self._old_templates.values()):
            template.kill()

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
            self._exit_code = EXIT_BUG
            self.event(Event.FATAL)

    # -- signals -------------------------------------------------------------------------------------------------

    def _on_stop_signal(self) -> None:
        if self._wish in (Wish.STOP, Wish.FORCE):
            self.event(Event.FORCED)
        else:
            self.event(Event.STOP_ASKED)

    def _reload(self) -> None:
        """A new template, and once it stands new executors one by one, each when its step is done. Until then, and when
        it does not come to stand, everything goes on with the old one."""
        if self._state not in (State.RUNNING, State.DRAINING):
            return
        self._notifier.reloading()
        generation = self._template.generation
        if self._coming is not None:
            generation = max(generation, self._coming.generation)
            self._drop_coming()  # it may have imported what has changed since
        self._coming = self._new_template(generation)
        self._coming.start()

    def _drop_coming(self) -> None:
        coming, self._coming = self._coming, None
        if coming is not None:
            self._retire_template(coming)
            coming.kill()  # it may be inside an import for long, and nobody depends on it

    def _log_status(self) -> None:
        self._background(self._log_status_later())

    async def _log_status_later(self) -> None:
        status = await self.status()
        executors = status.pop("executors")
        for name, value in status.items():
            logs.info("status", **{name: value})
        for row in executors:
            logs.info("status.executor", **row)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _generation_ids(self) -> dict[str, str]:
        ids = self._generations
        return {
            "config_family": ids.config_family,
            "config_generation": ids.config_generation,
            "budget_generation": ids.budget_generation,
        }

    def _facts(self) -> dict[str, Any]:
        return {
            "status": self._state.value,
            "paused": not self._gate.conditions["pause"].open,
            "capacity": {"executors": self._config.executors, "free": self._pool.free, "busy": self._pool.busy},
            "node_types": self._node_types,
        }

    async def _queue_stats(self) -> QueueStats | None:
        if not self._gate.conditions["redis"].open:
            return None
        try:
            answer = await asyncio.wait_for(self._runner.run(carriers.stats(self._keys)), 1.0)
        except TimeoutError:
            return None
        return answer.value if isinstance(answer, Value) else None

    async def status(self) -> dict[str, Any]:
        """The answer to ``status`` (CONTRACT)."""
        redis = self._gate.conditions["redis"]
        writes = self._gate.conditions["writes"]
        disk = self._gate.conditions["disk"]
        free = self._disk.free_gib
        return {
            "instance_id": self._config.instance_id,
            "incarnation": self._holder.rpartition("/")[2],
            "pid": own_identity().pid,
            "version": plaita.__version__,
            "status": self._state.value,
            "serving": report.serving(self._state, self._gate),
            "paused": not self._gate.conditions["pause"].open,
            "shut": self._gate.shut(),
            "uptime_s": round((boot_ms() - self._started) / 1000, 3),
            "registry_registered": self._registrar.registered,
            "redis": {
                "connected": redis.open,
                "server": self._server_text or None,
                "since": iso_utc(redis.since),
                "error": next((shut.value for shut in (redis, writes) if not shut.open), None),
            },
            "queue": report.queue_block(self._keys, await self._queue_stats()),
            "template": {
                "pid": self._template.pid,
                "generation": self._template.generation,
                "ready": self._template.can_spawn,
            },
            "executors": report.executor_rows(self._pool.executors, self._pool.restarts),
            "disk": {
                "path": self._config.disk_guard_path,
                "free_gib": None if free is None else round(free, 3),
                "min_free_gib": self._config.min_free_disk_gib,
                "open": disk.open,
            },
            "drain": self._drain_block(),
            "counters": self._stats.snapshot(),
            "timings": dict(self._stats.timings),
            "generations": self._generation_ids(),
        }

    def metrics(self) -> metrics.Snapshot:
        """For a scrape, on another thread: reads what the loop last wrote, changes nothing."""
        queue = report.queue_block(self._keys, self._last_queue)
        return metrics.Snapshot(
            instance=self._config.instance_id,
            stream=self._keys.queue,
            group=self._keys.group,
            up=self._state is State.RUNNING,
            active=self._pool.busy,
            draining=self._state is State.DRAINING,
            registered=self._registrar.registered,
            heartbeat_s=self._turned / 1000,
            counters=self._stats.snapshot(),
            queue={
                "stream_length": queue["stream_length"],
                "pending": queue["pending"],
                "dlq_length": queue["dlq_length"],
                "delayed": queue["delayed"],
                "max_deliveries": self._config.max_deliveries,
                "claim_min_idle_ms": self._config.claim_min_idle_ms,
            },
        )

    async def _refresh_metrics(self) -> None:
        """What a scrape must not ask Redis for itself; the heartbeat is a loop that turns."""
        while True:
            self._turned = wall_ms()
            self._last_queue = await self._queue_stats()
            await asyncio.sleep(METRICS_EVERY_S)

    def _drain_block(self) -> dict[str, Any]:
        draining = self._state in (State.DRAINING, State.STOPPING)
        phase = "none"
        if draining:
            phase = "draining" if self._carries else "drained"
        receipt = {
            name: self._stats.get(name) - self._drain.before.get(name, 0)
            for name in ("finished", "handed_on", "killed")
        }
        return {
            "phase": phase,
            "since": iso_utc(self._drain.since) if draining else None,
            "timeout_s": self._drain.timeout_s,
            "left": len(self._carries),
            "receipt": receipt if draining else None,
        }

    def handlers(self) -> dict[str, Handler]:
        """The commands of the control socket."""
        return {
            "status": self._on_status,
            "executors": self._on_executors,
            "explain": self._on_explain,
            "drain": self._on_drain,
            "undrain": self._on_undrain,
            "pause": self._on_pause,
            "resume": self._on_resume,
            "reload": self._on_reload,
        }

    async def _on_status(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, **await self.status()}

    async def _on_executors(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, "executors": report.executor_rows(self._pool.executors, self._pool.restarts)}

    async def _on_explain(self, request: dict[str, Any]) -> dict[str, Any]:
        stats = await self._queue_stats()
        waiting = None
        if stats is not None and all(stream.lag is not None for stream in stats.streams):
            waiting = sum(stream.lag or 0 for stream in stats.streams)
        rows = report.gate_rows(self._gate, self._pool.free, self._config.executors, waiting, self._generation_ids())
        return {"ok": True, "serving": report.serving(self._state, self._gate), "gates": rows}

    async def _on_drain(self, request: dict[str, Any]) -> dict[str, Any]:
        deadline = request.get("deadline")
        if deadline is not None and not (isinstance(deadline, int | float) and 0 <= deadline <= 86_400):
            return {"ok": False, "error": f"deadline: {deadline!r} is not a number of seconds from 0 to 86400"}
        already = self._state is State.DRAINING
        if deadline is not None:
            self._drain.timeout_s = float(deadline)
        if not self.event(Event.DRAIN_ASKED):
            return {"ok": False, "error": f"the supervisor is {self._state.value}"}
        if already and deadline is not None:
            self._start_deadline(self._drain.timeout_s)
        return {"ok": True, "status": self._state.value, "drain": self._drain_block()}

    async def _on_undrain(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.event(Event.DRAIN_UNDONE):
            return {"ok": False, "error": f"the supervisor is {self._state.value} and was told to stop"}
        return {"ok": True, "status": self._state.value}

    async def _on_pause(self, request: dict[str, Any]) -> dict[str, Any]:
        self._gate.set("pause", False, value="paused", hint="plaita-supervisor resume")
        self._background(self._registrar.announce())
        return {"ok": True, "status": self._state.value, "paused": True}

    async def _on_resume(self, request: dict[str, Any]) -> dict[str, Any]:
        self._gate.set("pause", True, value="not paused")
        self._background(self._registrar.announce())
        return {"ok": True, "status": self._state.value, "paused": False}

    async def _on_reload(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._state is not State.RUNNING:
            return {"ok": False, "error": f"the supervisor is {self._state.value}"}
        self._reload()
        wanted = self._coming
        if request.get("wait"):
            while self._coming is not None:  # noqa: ASYNC110 - one person waits
                await asyncio.sleep(0.05)
            if self._template is not wanted:
                return {"ok": False, "error": "the new template did not come to stand; see the log (reload.failed)"}
            await self._pool.wait_all_new()
        generation = wanted.generation if wanted is not None else self._template.generation
        return {"ok": True, "status": self._state.value, "generation": generation}


def registry_status(record: bytes) -> str:
    """The status a registry record names; an unreadable one names none."""
    try:
        value = jsontext.loads(record)
    except jsontext.JSONTextError:
        return ""
    return str(value.get("status", "")) if isinstance(value, dict) else ""
