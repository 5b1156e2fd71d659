"""HTTP calls that end waits (ledger E1, DECISIONS 30): the intake that an HTTP server hands them to, and the service
that looks after those which came too early. No server, no port: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from plaita import ids, jsontext
from plaita.callback_url import Place, execution_key, is_token, read_path
from plaita.clock import iso_utc, wall_ms
from plaita.errors import InputError
from plaita.policy import callbacks as policy
from plaita.policy.callbacks import EarlyCall, Reply, Request
from plaita.policy.carrier import resume_payload
from plaita.services.host import NotServed, ServiceHost, served
from plaita.store import callbacks, events, executions
from plaita.store.call import Refused, Value
from plaita.store.executions import Row, Wake
from plaita.store.keys import check_tenant

LOOK_EVERY_S = 60.0
KEPT_MS = 7 * 86_400_000
MOVES = 8  # of an execution while one call is judged


class CallbackIntake:
    """Takes HTTP calls. ``secret``: the platform's, as supervisors have it; without one there are no callbacks."""

    def __init__(self, host: ServiceHost, secret: str | None) -> None:
        self._host = host
        self._secret = secret

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. ``path`` as it came, percent-encoded, without the query."""
        request = Request(method.upper(), path, {name.lower(): value for name, value in headers.items()}, query, body)
        try:
            answer = await self._answer(request)
        except NotServed:
            answer = policy.error(503, "it is not known whether this was done; call again", Retry_After="5")
        return answer.status, answer.headers, answer.body

    async def _answer(self, request: Request) -> Reply:
        place = self._place(request.path)
        if place is None:
            return policy.NOT_FOUND
        unreadable = policy.unreadable(request)
        if unreadable is not None:
            return unreadable
        for _ in range(MOVES):
            answer = await self._judged(place, request)
            if answer is not None:
                return answer
        raise NotServed("the execution moves all the time")

    async def _judged(self, place: Place, request: Request) -> Reply | None:
        """None where the execution went on meanwhile: judge anew."""
        row = await _row(self._host, place)
        if row is None:
            return policy.NOT_FOUND
        stage = policy.stage(place, row.control, row.timings.get(place.node_id))
        if stage == "over":
            return policy.SECOND
        if stage == "early":
            return await self._keep(place, row, request)
        config = jsontext.loads(row.control["wait_config"])
        refused = policy.refusal(config, request)
        if refused is not None:
            return refused
        return policy.success(config) if await _end(self._host, place, row, request) else policy.SECOND

    def _place(self, path: str) -> Place | None:
        """Where the call is meant to go, if its token says so."""
        found = read_path(path)
        if found is None or self._secret is None:
            return None
        place, token = found
        try:
            if check_tenant(place.tenant) != place.tenant or not ids.check_id(place.execution_id, "execution"):
                return None
        except InputError:
            return None
        key = execution_key(self._secret, self._host.keys.prefix, place.tenant, place.execution_id)
        return place if is_token(key, place, token) else None

    async def _keep(self, place: Place, row: Row, request: Request) -> Reply | None:
        """A call that came first: its wait will find it as it begins."""
        if request.method not in policy.EARLY_METHODS:
            return policy.error(405, "nobody waits for this call yet", Allow=", ".join(sorted(policy.EARLY_METHODS)))
        record = EarlyCall(place, request, wall_ms()).to_record()
        keys = self._host.keys.for_tenant(place.tenant)
        seen = row.control.get("status", ""), row.control.get("step", "")
        call = callbacks.keep(keys, policy.kept_name(place), record, place.execution_id, *seen)
        answer = await self._host.run(call)
        if isinstance(answer, Refused) and answer.reason == "moved":
            return None
        if isinstance(answer, Refused) and answer.reason == "full":
            return policy.error(503, "too many calls came early; call again later", Retry_After="60")
        if not isinstance(answer, Value):
            raise NotServed(f"callbacks.keep: {answer}")
        return policy.reply(202, {"status": "accepted"}) if answer.value else policy.SECOND


class EarlyCalls:
    """The service ``http_callback``: drops calls that came first and that no wait will find any more. One that is
    wanted is found by whoever suspends (``supervisor.suspends``)."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except NotServed:
                pass  # plaita's own server: the host sees to that
            await asyncio.sleep(LOOK_EVERY_S * (0.8 + random.random() * 0.4))

    async def look(self) -> None:
        """Once through the calls that are kept. Raises NotServed."""
        cursor = "0"
        while True:
            page = await served(self._host, callbacks.kept(self._host.keys, cursor))
            for name, record in page.records:
                if await self._is_useless(record):
                    await served(self._host, callbacks.drop(self._host.keys, name))
            cursor = page.cursor
            if cursor == "0":
                return

    async def _is_useless(self, record: bytes) -> bool:
        try:
            call = EarlyCall.of_record(record)
        except ValueError as error:
            self._host.tell("error", "callback.unreadable", why=error)
            return True
        if wall_ms() - call.at_ms > KEPT_MS:
            return True
        row = await _row(self._host, call.place)
        return row is None or policy.stage(call.place, row.control, row.timings.get(call.place.node_id)) == "over"


async def _row(host: ServiceHost, place: Place) -> Row | None:
    keys = host.keys.for_tenant(place.tenant)
    answer = await host.run(executions.load(keys, place.execution_id))
    if isinstance(answer, Refused):
        return None  # deleted, or no execution at all
    if not isinstance(answer, Value):
        raise NotServed(f"executions.load: {answer}")
    return answer.value


async def _end(host: ServiceHost, place: Place, row: Row, request: Request) -> bool:
    """End the wait by this call; False where something else was first."""
    config = jsontext.loads(row.control["wait_config"])
    data = policy.event_data(config, place.tenant, request, wall_ms())
    # Each call is an event of its own, so that of two at once the second is told that it is.
    event_id = f"{policy.event_prefix(place)}{ids.new_nonce()}"
    wait = row.control["wait"]
    payload = resume_payload(
        execution_id=place.execution_id,
        flow_id=row.control.get("flow_id") or None,
        resume_type="event",
        tenant_id=place.tenant,
        timestamp=iso_utc(wall_ms()) or "",
        wait=wait,
    )
    told = events.told(event_id, "http_callback", jsontext.dumps(data))
    wake = Wake(place.execution_id, "event", told, event_id, payload, wait=wait, named=True)
    call = executions.wake(host.keys.for_tenant(place.tenant), wake)
    for _ in range(4):
        answer = await host.run(call)
        if isinstance(answer, Value):
            return answer.value.woken
        if isinstance(answer, Refused):
            return False  # deleted meanwhile
        await asyncio.sleep(0.1)
    raise NotServed(f"{call.name}: {answer}")
