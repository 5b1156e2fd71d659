"""Runs the services of a host as long as the host lives: one that fails is told of and begun again, alone."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable
from typing import Protocol

from plaita.policy.backoff import backoff_s
from plaita.services.bridges import QueueBridges
from plaita.services.callbacks import EarlyCalls
from plaita.services.events import EventFeed
from plaita.services.host import ServiceHost
from plaita.services.schedules import ScheduleService

WELL_AFTER_S = 60.0  # a service that ran so long failed for a new reason


class Service(Protocol):
    """``run`` goes on until it is cancelled."""

    async def run(self) -> None: ...


ServiceClass = Callable[[ServiceHost], Service]


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

    def register_service_class(self, service_type: str, service: ServiceClass) -> None:
        """Add a type of service, or put another in its place; the running ones stay as they are."""
        self._classes[service_type] = service

    def start_all_services(self) -> None:
        """Begin all that do not run."""
        for name, service in self._classes.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._keep(name, service), name=f"service {name}")

    async def stop_all_services(self) -> None:
        """End all; what one was at is left as it is, for any host to take up."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, name: str, service: ServiceClass) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await service(self._host).run()
            except Exception:  # noqa: BLE001 - one service's bug must not end the others, nor itself for good
                self._host.count("service_failures")
                self._host.tell("error", "service.failed", service=name, traceback=traceback.format_exc())
            failures = 0 if loop.time() - began > WELL_AFTER_S else failures + 1
            await asyncio.sleep(backoff_s(failures, base=0.5, cap=30.0, jitter=random.random()))
