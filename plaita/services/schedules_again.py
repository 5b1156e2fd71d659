"""Looks for schedules whose due time was lost, so that one never stops firing without a word (ledger E5).

Once in ``EVERY_S`` one host looks, whichever asks first. What it cannot look at it tells of, and is tried again then.
"""

from __future__ import annotations

import asyncio

from plaita.clock import iso_utc
from plaita.errors import InputError
from plaita.policy.schedule_again import due_again, lacks_due_time
from plaita.services.host import NotServed, ServiceHost, served
from plaita.store import schedules
from plaita.store.call import Value
from plaita.store.keys import Keys, check_tenant
from plaita.store.schedules import Stored

EVERY_S = 60.0


class LostSchedules:
    """``look`` may be called at any time; it does something where it is time and this host's turn."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._look_at = 0.0

    async def look(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        self._look_at = now + EVERY_S
        try:
            if await served(self._host, schedules.turn(self._host.keys, int(EVERY_S * 1000) - 1000)):
                await self._of_all()
        except NotServed as why:
            self._host.tell("warning", "schedule.not_looked", why=why)

    async def _of_all(self) -> None:
        cursor = "0"
        while True:
            cursor, names = await served(self._host, schedules.tenants(self._host.keys, cursor))
            for name in names:
                try:
                    await self._of(self._host.keys.for_tenant(check_tenant(name)))
                except (InputError, NotServed) as why:
                    self._host.tell("warning", "schedule.not_looked", tenant_id=name, why=why)
            if cursor == "0":
                return

    async def _of(self, keys: Keys) -> None:
        cursor = "0"
        while True:
            page = await served(self._host, schedules.without_due_time(keys, cursor))
            for stored in page.schedules:
                await self._judge(keys, stored, page.now)
            cursor = page.cursor
            if cursor == "0":
                return

    async def _judge(self, keys: Keys, stored: Stored, now: int) -> None:
        schedule = lacks_due_time(stored.record, stored.schedule_id, keys.queue, now, asked=False)
        if schedule is None:
            return
        history = await served(self._host, schedules.history(keys, stored.schedule_id))
        due = due_again(schedule, history, now, asked=False)
        if due is None:
            return
        put = schedules.put(keys, stored.schedule_id, stored.record, due, stored, flow_id=schedule.flow_id)
        if isinstance(await self._host.run(put), Value):  # else it was changed, or is found again the next time
            self._host.count("schedules_put_back")
            self._host.tell(
                "warning",
                "schedule.put_back",
                schedule_id=stored.schedule_id,
                tenant_id=keys.tenant,
                due=iso_utc(due),
                why="its due time was lost",
            )
