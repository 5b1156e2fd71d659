"""Runs the services of a host as long as the host lives: one that fails is told of and begun again, alone."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.flow.failure import clean_text, described
from plaita.ids import new_execution_id
from plaita.policy.backoff import backoff_s
from plaita.services.bridges import QueueBridges
from plaita.services.callbacks import EarlyCalls
from plaita.services.events import EventFeed
from plaita.services.host import NotServed, ServiceHost, served
from plaita.services.schedules import ScheduleService
from plaita.store import events
from plaita.store.events import Event

WELL_AFTER_S = 60.0  # a service that ran so long failed for a new reason
MAX_ERROR = 200
PUBLISH_S = 5.0


class Service(Protocol):
    """``run`` goes on until it is cancelled. Where it has a ``state()``, what that answers is shown in ``status``."""

    async def run(self) -> None: ...


ServiceClass = Callable[[ServiceHost], Service]


@dataclass(slots=True)
class _Life:
    """``since``: epoch ms of the last change; ``failures``: since the host began."""

    state: str
    since: int
    failures: int = 0
    error: str | None = None
    service: Service | None = None

    def enter(self, state: str) -> None:
        self.state, self.since = state, wall_ms()


class ServiceManager:
    """The services by their type; more can be registered before the start (REFERENCE 5.10)."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._classes: dict[str, ServiceClass] = {
            "events": EventFeed,
            "schedules": ScheduleService,
            "redis_queue": QueueBridges,
            "http_callback": EarlyCalls,
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lives: dict[str, _Life] = {}

    def register_service_class(self, service_type: str, service: ServiceClass) -> None:
        """Add a type of service, or put another in its place; the running ones stay as they are."""
        self._classes[service_type] = service

    def start_all_services(self) -> None:
        """Begin all that do not run."""
        for name, service in self._classes.items():
            if name not in self._tasks:
                self._lives[name] = _Life("running", wall_ms())
                self._tasks[name] = asyncio.create_task(self._keep(name, service), name=f"service {name}")

    async def stop_all_services(self) -> None:
        """End all; what one was at is left as it is, for any host to take up."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for life in self._lives.values():
            life.enter("stopped")

    def states(self) -> list[dict[str, Any]]:
        """For ``status``: of each ``{"service", "state" (running|failed|stopped), "since", "failures", "error"}`` and
        what it tells of itself. ``error``: of the last failure, None where there was none."""
        rows = []
        for name, life in sorted(self._lives.items()):
            row = {"service": name, "state": life.state, "since": iso_utc(life.since)}
            told = getattr(life.service, "state", None) if life.state == "running" else None
            rows.append(row | {"failures": life.failures, "error": life.error} | (told() if callable(told) else {}))
        return rows

    async def _keep(self, name: str, service: ServiceClass) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        life = self._lives[name]
        while True:
            began = loop.time()
            try:
                life.service = service(self._host)
                await life.service.run()
                why = "it has ended by itself"
            except asyncio.CancelledError as error:
                if _is_asked_to_end():
                    raise
                why = self._failed(name, error)  # of something that it waited for: its own affair
            except Exception as error:  # noqa: BLE001 - one service's bug must not end the others, nor itself for good
                why = self._failed(name, error)
            life.failures, life.error = life.failures + 1, clean_text(why, MAX_ERROR)
            life.enter("failed")
            failures = 0 if loop.time() - began > WELL_AFTER_S else failures + 1
            await self._publish(name, life)
            await asyncio.sleep(backoff_s(failures, base=0.5, cap=30.0, jitter=random.random()))
            life.enter("running")

    async def _publish(self, name: str, life: _Life) -> None:
        """An event of type ``service_error`` (FLOW-FORMAT 2.3), for a flow or a program that looks after this host."""
        data = {"error_type": "service_error", "error_message": life.error, "service_type": name}
        data["instance_id"] = self._host.consumer
        event = Event(new_execution_id(), "service_error", jsontext.dumps(data), source=self._host.consumer)
        try:
            async with asyncio.timeout(PUBLISH_S):
                await served(self._host, events.publish(self._host.keys, event), tries=1)
        except (NotServed, TimeoutError) as error:
            self._host.tell("warning", "service.failure_not_published", service=name, reason=error)

    def _failed(self, name: str, error: BaseException) -> str:
        self._host.count("service_failures")
        self._host.tell("error", "service.failed", service=name, traceback=traceback.format_exc())
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return described(error)


def _is_asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
