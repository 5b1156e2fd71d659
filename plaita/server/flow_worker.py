"""``FlowWorker``: executions run by a program of your own (ledger R7, F1, F7).

Blocking methods for any thread around a ``Host`` on a loop in a thread of its own. Owns the words of the answers.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from plaita import ids
from plaita.client import operations, resuming, views
from plaita.errors import ExecutionIdConflictError, InputError, RefusedError, ResumeProtocolError
from plaita.nodes.callbacks import Callbacks, registered_callbacks
from plaita.nodes.registry import NodeRegistry, get_default_registry
from plaita.policy import repos
from plaita.policy.retention import DAY_MS
from plaita.runtime_config import SupervisorConfig, load_runtime_config
from plaita.server.definitions import DefinitionCache
from plaita.server.host import Host
from plaita.server.worker_keys import WorkerKeys, one_server
from plaita.storage.base import ExecutionStorage, FlowStorage
from plaita.storage.redis import RedisExecutionStorage
from plaita.store.executions import Row
from plaita.store.keys import TERMINAL, Keys
from plaita.supervisor import logs
from plaita.tenancy import set_default_tenant_once

T = TypeVar("T")

_numbers = itertools.count(1)
_SHOWN = (
    "execution_id", "flow_id", "version", "tenant_id", "status", "output", "error", "last_node_id", "waiting",
)  # fmt: skip


class FlowWorker:
    """Runs executions in this process: those it is asked for (``start_flow``, ``resume_flow``), and those of the queue
    while ``run`` goes on.

        worker = FlowWorker(RedisExecutionStorage(url), RedisFlowStorage(url))
        print(worker.start_flow("greet", {"name": "x"})["output"])
        worker.run()        # until another thread calls stop()

    Leases, fences, retries, waits and drains are those of a supervisor, by the same code; supervisors and workers may
    share a queue. Node code runs in threads and cannot be ended by force: what is over its time, or cancelled, is told
    by ``execution.cancel_event`` and given up after ``kill_grace`` seconds. Its answer is ignored and cannot be written
    any more, but its thread goes on until its code returns. Code that must be killed belongs under a supervisor.
    """

    def __init__(
        self,
        execution_storage: ExecutionStorage,
        flow_storage: FlowStorage,
        event_bus: Any = None,
        cache_size: int = 100,
        cache_ttl: float = 300,
        callback_handlers: Iterable[Any] = (),
        *,
        registry: NodeRegistry | None = None,
        concurrency: int = 4,
        **settings: Any,
    ) -> None:
        """``concurrency``: how many executions of the queue at once. ``registry``: the node types, by default those of
        this process. ``callback_handlers``: told of each step that runs here (ledger F7, ``plaita.FlowCallback``), with
        those that the process has registered. ``event_bus``: an object with ``publish(event)``, kept for nodes and
        callbacks of yours; plaita publishes nothing on it. ``settings``: those of ``plaita-supervisor run`` by name,
        such as ``queue_name``, ``lease_ttl_seconds``, ``kill_grace`` or ``drain_timeout``; the ``PLAITA_`` environment
        counts too.

        Raises InputError, ConfigError.
        """
        executions, flows = one_server(execution_storage, flow_storage)
        if event_bus is not None and not callable(getattr(event_bus, "publish", None)):
            raise InputError(f"event_bus: a {type(event_bus).__name__} has no method publish")
        for said in ("redis_url", "embedded", "key_prefix"):
            if said in settings:
                raise InputError(f"{said}: where the data is, the storages say; give it to them")
        self.execution_storage = execution_storage
        self.flow_storage = flow_storage
        self.event_bus = event_bus
        self._definitions = DefinitionCache(flow_storage, cache_size, cache_ttl)
        self._types = get_default_registry() if registry is None else registry
        own = tuple(callback_handlers)
        self._callbacks = Callbacks([*registered_callbacks().handlers, *own]) if own else None
        name = f"{socket.gethostname()}-{os.getpid()}-{next(_numbers)}"
        given = {"instance_id": name, "executors": concurrency, "kill_grace": 1.0} | settings
        given.setdefault("consumer_name", given["instance_id"])
        if isinstance(executions, RedisExecutionStorage):
            given.setdefault("execution_state_ttl_days", executions.retention_ms / DAY_MS)
        self._config = _configuration({**given, "redis_url": executions.url, "key_prefix": executions.keys.prefix})
        self._url = executions.url
        config = self._config
        everybody = WorkerKeys(
            prefix=config.key_prefix,
            queue=config.queue_name,
            group=config.consumer_group,
            dlq=config.dlq_key,
            flows_prefix=flows.keys.prefix,
        )
        self._everybody: Keys = everybody
        self._keys: Keys = everybody.for_tenant(executions.keys.tenant)
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._host: Host | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def instance_id(self) -> str:
        """Its name in leases and in the registry."""
        return self._config.instance_id

    @property
    def settings(self) -> SupervisorConfig:
        """What it goes by, judged whole (ledger C1)."""
        return self._config

    @property
    def stats(self) -> dict[str, int]:
        """Counters, under the names of ``plaita-supervisor status``."""
        return {} if self._host is None else self._host.stats.snapshot()

    def get_flow_definition(self, flow_id: str, version: str = "latest") -> dict[str, Any] | None:
        """The definition, None where there is none; remembered for ``cache_ttl`` seconds (ledger F1). A start does not
        go by it: which version is the latest is read at each start, and an execution keeps what it began with."""
        return self._definitions.get(flow_id, version)

    # -- direct calls -------------------------------------------------------------------------------------

    def start_flow(
        self,
        flow_id: str,
        params: Any = None,
        version: str | None = None,
        *,
        execution_id: str | None = None,
        dedup_key: str | None = None,
    ) -> dict[str, Any]:
        """Start an execution and run it here until it has ended or waits.

        The answer has ``execution_id``, ``flow_id``, ``version``, ``tenant_id``, ``status``, ``output``, ``error``,
        ``last_node_id`` and ``waiting``, and ``already_terminal``, ``already_suspended`` and ``deduplicated``, True
        where that is why nothing ran: a dedup key that was used before answers the first execution, an id that was used
        before goes on from its checkpoint (ledger S1, S2). ``status`` is ``deleted`` for an id that was deleted (D2);
        ``pending`` or ``running`` where this worker was drained meanwhile, and others go on. Over the tenant's quota it
        waits for a place (T3).

        Raises InputError, RefusedError (``no_flow``, ``no_version``, ``repo_denied``, ``stopped``,
        ``tenant_disabled``), ExecutionIdConflictError (F8), UnreachableError.
        """
        return self._call(self._start_flow(flow_id, params, version, execution_id, dedup_key))

    async def _start_flow(
        self, flow_id: str, params: Any, version: str | None, execution_id: str | None, dedup_key: str | None
    ) -> dict[str, Any]:
        host = self._running_host()
        repo = repos.repo_of_input(params)
        if repos.is_denied(repo, self._config.deny_repos):
            raise RefusedError("repo_denied", f"this host denies tasks for the repository {repo!r} (ledger G6)")
        name = ids.new_execution_id() if execution_id is None else execution_id
        try:
            started = await host.perform(
                operations.start(
                    self._keys,
                    flow_id,
                    {} if params is None else params,
                    version=version,
                    execution_id=name,
                    dedup_key=dedup_key,
                    target=self.instance_id,
                )
            )
        except RefusedError as error:
            if error.reason == "tombstoned":
                return _deleted(name)
            if error.reason == "id_taken":
                return await self._go_on(host, name, flow_id)
            raise
        if started.deduplicated:
            row = await host.row(self._keys, started.execution_id)
            return self._answer(started.execution_id, row, short=True) | {"deduplicated": True}
        return self._answer(name, await host.see_through(self._keys, name))

    async def _go_on(self, host: Host, execution_id: str, flow_id: str) -> dict[str, Any]:
        """A start whose row is there: on from its checkpoint, never over again (ledger S1)."""
        row = await host.row(self._keys, execution_id)
        if row is not None and row.control.get("flow_id") != flow_id:
            raise ExecutionIdConflictError(
                f"execution {execution_id!r} is of flow {row.control.get('flow_id')!r}, not of {flow_id!r}"
            )
        return await self._resume_flow(execution_id, "continue", None)

    def resume_flow(self, execution_id: str, resume_type: str = "continue", data: Any = None) -> dict[str, Any]:
        """Go on with an execution, here, until it has ended or waits. ``resume_type``: ``event`` (with ``data``),
        ``timeout``, ``cancel`` (``data``: the reason), ``continue`` or ``retry`` (ledger S3 to S8).

        The answer is as ``start_flow``'s. ``already_terminal`` or ``already_suspended`` where there was nothing to do;
        with ``g1_wakeups_exhausted`` or ``deterministic_failure_exhausted`` True (and ``counter_key``) where a retry is
        not allowed any more (S13); ``reason`` ``held`` where another runs it at this moment, ``definition_gone`` where
        it cannot be retried until its definition is back.

        Raises InputError, RefusedError (``no_row``, ``stopped``), ResumeProtocolError (an event or timeout that does
        not fit the row, which stays as it is: S6, S7), UnreachableError.
        """
        return self._call(self._resume_flow(execution_id, resume_type, data))

    async def _resume_flow(self, execution_id: str, resume_type: str, data: Any) -> dict[str, Any]:
        host = self._running_host()
        try:
            if resume_type == "cancel":
                said = await host.perform(resuming.cancel(self._keys, execution_id, _reason(data)))
                said = {"resumed": said["cancel_requested"], "reason": "already_terminal"}
            else:
                said = await host.perform(resuming.resume(self._keys, execution_id, resume_type, data))
                if said["reason"] == "not_waiting":
                    said = await self._normalised(host, execution_id, said["status"], resume_type)
        except RefusedError as error:
            if error.reason == "deleted":
                return _deleted(execution_id)
            raise
        reason = said["reason"]
        if said["resumed"] or reason == "already_woken":
            return self._answer(execution_id, await host.see_through(self._keys, execution_id))
        if reason == "stale_wait":
            raise ResumeProtocolError(f"execution {execution_id!r} waits for something else by now")
        answer = self._answer(execution_id, await host.row(self._keys, execution_id), short=True)
        if reason in ("g1_wakeups_exhausted", "deterministic_failure_exhausted"):
            answer |= {"already_terminal": True, reason: True, "counter_key": said["counter_key"]}
        return answer | {"reason": reason}

    async def _normalised(self, host: Host, execution_id: str, status: str, resume_type: str) -> dict[str, Any]:
        """An event or timeout of a wait that is over goes on as a continue (ledger S6). Raises ResumeProtocolError."""
        if status != "running":
            raise ResumeProtocolError(
                f"execution {execution_id!r} is {status} and waits for nothing: no {resume_type} can resume it"
            )
        return await host.perform(resuming.resume(self._keys, execution_id, "continue"))

    def _answer(self, execution_id: str, row: Row | None, *, short: bool = False) -> dict[str, Any]:
        """``short``: nothing ran, so what it is, it was already."""
        if row is None:
            return _deleted(execution_id)
        shown = views.execution(row, self._keys.tenant)
        return {name: shown[name] for name in _SHOWN} | {
            "already_terminal": short and row.status in TERMINAL,
            "already_suspended": short and row.status == "suspended",
            "deduplicated": False,
        }

    # -- the queue -----------------------------------------------------------------------------------------

    def run(self, wait_for_inflight: bool = True) -> None:
        """Take executions from the queue, as a supervisor does, until ``stop`` or ``request_drain``; returns when all
        is ended. ``wait_for_inflight``: running steps may finish within ``drain_timeout`` before the leases and the
        registry entry go (ledger R7); else they are told to stop at once. Ctrl-C is a ``stop``, and raised afterwards.

        Raises InputError, RefusedError ``stopped``, UnreachableError.
        """
        set_default_tenant_once()
        host = self._ensure_host()
        self._on_loop(host.consume)
        try:
            self._submit(host.drains()).result()
        finally:
            self.stop(wait_for_inflight)

    def request_drain(self) -> None:
        """Take nothing more, from the queue or by calls; what runs is handed on after its step. Returns at once; may be
        called from a signal handler."""
        host = self._host
        if host is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(host.drain)
        else:
            self._stopped.set()

    def stop(self, wait: bool = True) -> None:
        """End this worker: drained first, with ``wait`` for as long as ``drain_timeout``; then what still runs is told,
        given up after ``kill_grace`` and handed on. Returns when it has ended. Safe to call twice, and from any thread
        but those of its own nodes."""
        with self._lock:
            self._stopped.set()
            host, loop, thread = self._host, self._loop, self._thread
            if host is None or loop is None or thread is None or loop.is_closed():
                return
            self._submit(self._end(host, wait)).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _end(self, host: Host, wait: bool) -> None:
        host.drain()
        if not (wait and await host.wait_empty(self._config.drain_timeout)):
            await host.give_up(self._config.kill_grace if wait else 0.0)
        await host.end()

    # -- the loop --------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            host = self._ensure_host()
        except BaseException:
            work.close()
            raise
        return self._submit(host.call(work)).result()

    def _running_host(self) -> Host:
        assert self._host is not None
        if self._host.leaving:
            raise RefusedError("stopped", f"this worker is {self._host.state.value}; make another")
        return self._host

    def _ensure_host(self) -> Host:
        if self._stopped.is_set():  # before the lock, which a stop that waits for work has
            raise RefusedError("stopped", "this worker was stopped; make another")
        with self._lock:
            if self._stopped.is_set():
                raise RefusedError("stopped", "this worker was stopped; make another")
            if self._host is not None:
                return self._host
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name=f"plaita-worker-{self.instance_id}", daemon=True)
            thread.start()
            self._loop, self._thread = loop, thread
            try:
                host = self._submit(self._make_host()).result()
            except BaseException:
                self._loop = self._thread = None
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()
                raise
            self._host = host
            return host

    async def _make_host(self) -> Host:
        loop = asyncio.get_running_loop()
        host = Host(loop, self._config, self._url, self._everybody, self._types, self._types.names(), self._callbacks)
        try:
            await host.start()
        except BaseException:
            await host.end()
            raise
        return host

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _on_loop(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self._submit(call()).result()


def _reason(data: Any) -> str:
    if isinstance(data, dict):
        data = data.get("reason")
    return "" if data is None else str(data)


def _deleted(execution_id: str) -> dict[str, Any]:
    return dict.fromkeys(_SHOWN) | {
        "execution_id": execution_id,
        "status": "deleted",
        "already_terminal": False,
        "already_suspended": False,
        "deduplicated": False,
    }


def _configuration(settings: dict[str, Any]) -> SupervisorConfig:
    """The settings of a supervisor, less those of its processes. Raises InputError, ConfigError."""
    unknown = sorted(set(settings) - set(SupervisorConfig.model_fields))
    if unknown:
        raise InputError(f"settings: {', '.join(map(repr, unknown))} are none; see docs/configuration.md")
    found = load_runtime_config("worker", flags=settings, file=os.devnull)
    for warning in found.warnings:
        logs.warning("config.warning", warning=warning)
    return found
