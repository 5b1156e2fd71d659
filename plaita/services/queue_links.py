"""One server with queues that executions of this platform wait for: all waits of this host for it share a connection
for commands, and one for channels (DECISIONS 41).

Round by round each wait asks for its messages. A list's message is moved to a list of the wait's own, the wait is
ended, and only then it is dropped there: see ``store.bridges`` for who does the rest when a host dies in between.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field, replace

from plaita import jsontext
from plaita.clock import iso_utc, wall_ms
from plaita.policy import bridges as policy
from plaita.policy.backoff import backoff_s
from plaita.policy.bridges import Asked, Queue, Target, Told
from plaita.policy.carrier import resume_payload
from plaita.services.host import NotServed, ServiceHost, served
from plaita.store import bridges, events, queues
from plaita.store.bridges import Ending, Wait
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value
from plaita.store.listening import Listener
from plaita.store.queues import Read
from plaita.store.runner_async import AsyncRunner, RunnerState
from plaita.store.wire import GreetingError

ROUND_S = 0.1
BUSY_SHARE = 4  # a round that takes long is followed by a pause that is longer
TELL_EVERY_S = 300.0
LINGER_S = 30.0
AT_ONCE = 8  # waits that ask at a time: each may be answered with 4 MiB


@dataclass(slots=True)
class Reading:
    """A wait that this host reads for. ``age_ms``: of the wait at ``asked_at`` (the loop's time) or later. ``begun``:
    its record stands."""

    wait: Wait
    queue: Queue
    age_ms: int
    asked_at: float
    begun: bool = False
    heard: list[bytes] = field(default_factory=list)
    heard_bytes: int = 0

    def hear(self, message: bytes) -> None:
        """Keep a message of its channel until the next round: as many as end the wait, and no more."""
        size = self.heard_bytes + len(message)
        if len(self.heard) < self.queue.batch and (not self.heard or size <= policy.MAX_MESSAGE_BYTES):
            self.heard.append(message if size <= policy.MAX_MESSAGE_BYTES else message[:200])
            self.heard_bytes = size

    @property
    def asked(self) -> Asked:
        return Asked(self.wait.tenant, self.wait.execution_id, self.wait.flow_id or None, self.wait.node_id)


class TargetAway(Exception):
    """The queue's server did not do it, now; the text has no password in it."""


@dataclass(frozen=True, slots=True)
class Away:
    """``at``: since when by the loop's time, ``since`` as epoch ms."""

    at: float
    since: int
    why: str


async def end_wait(host: ServiceHost, wait: Wait, said: Told) -> bool:
    """End a wait by what the node is to be told; False where it was over. Raises NotServed."""
    event_id = f"redis_queue_{wait.digest}"  # a wait is ended once: all that ask for it mean the same
    payload = resume_payload(
        execution_id=wait.execution_id,
        flow_id=wait.flow_id or None,
        resume_type="event",
        tenant_id=wait.tenant,
        timestamp=iso_utc(wall_ms()) or "",
        wait=wait.wait,
    )
    fields: list[tuple[str, bytes | str]] = [
        ("payload", payload),
        ("schema_version", "1"),
        ("execution_id", wait.execution_id),
        ("tenant_id", wait.tenant),
    ]
    data = events.told(event_id, "redis_message", jsontext.dumps(said.data))
    ending = Ending(wait, said.becomes, data, event_id, fields)
    woken = await served(host, bridges.wake(host.keys, ending))
    if woken:
        host.count("queue_messages_bad" if said.bad else "queue_messages")
    return woken


class Link:
    """``add`` and ``remove`` waits; ``run`` until it is cancelled."""

    def __init__(self, host: ServiceHost, target: Target, holder: str) -> None:
        self._host = host
        self._holder = holder
        self.target = target
        self.readings: dict[str, Reading] = {}
        self.used_at = asyncio.get_running_loop().time()
        self._runner = AsyncRunner(target.url, name="plaita-bridge", on_state=self._changed)
        self._listener: Listener | None = None
        self._own: bool | None = None  # whether plaita's own data is there; None: not known, now
        self._failures = 0
        self._told_at: float | None = None
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self.away: Away | None = None

    @property
    def idle(self) -> bool:
        """Nobody has used it for a while."""
        return not self.readings and asyncio.get_running_loop().time() - self.used_at > LINGER_S

    def add(self, reading: Reading) -> None:
        self.readings[reading.wait.digest] = reading

    def remove(self, digest: str) -> None:
        self.readings.pop(digest, None)
        self.used_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if not self.readings:
                await asyncio.sleep(ROUND_S)
                continue
            try:
                await self._round()
            except TargetAway as why:
                self._tell(str(why))
                await asyncio.sleep(backoff_s(self._failures, base=0.2, cap=15.0, jitter=random.random()))
                self._failures += 1
                continue
            except NotServed:
                pass  # plaita's own server: the host sees to that
            else:
                self._well()
            await asyncio.sleep(max(ROUND_S, BUSY_SHARE * (loop.time() - began)))

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.abort("closed")
        await self._runner.close()

    async def settle(self, wait: Wait, queue: Queue, becomes: str) -> None:
        """Clear up after a wait that is over; ``becomes``: see ``queues.settle``. Raises NotServed, TargetAway."""
        self.used_at = asyncio.get_running_loop().time()
        if queue.kind == "list":
            refusal = policy.name_refusal(queue.name, self._namespace(wait)) if await self._owns() else None
            if refusal is not None:
                raise TargetAway(refusal)
            answer = await self._runner.run(queues.settle(queue.name, wait.digest, becomes))
            if not isinstance(answer, Value):
                raise TargetAway(_why(answer))
        await served(self._host, bridges.done(self._host.keys, wait.digest, self._holder))

    # -- a round -----------------------------------------------------------------------------------

    async def _round(self) -> None:
        await self._owns()
        await self._listen()
        asked = [self._in_turn(each) for each in [*self.readings.values()]]
        results = await asyncio.gather(*asked, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in sorted(failures, key=lambda each: isinstance(each, TargetAway | NotServed)):
            raise failure

    async def _in_turn(self, reading: Reading) -> None:
        async with self._at_once:
            if reading.wait.digest in self.readings:
                await self._one(reading)

    async def _one(self, reading: Reading) -> None:
        queue = reading.queue
        if not reading.begun and not await self._begin(reading):
            return
        if queue.kind == "pubsub":
            found = Read([*reading.heard], reading.heard_bytes)
        else:
            answer = await self._runner.run(self._call(reading))
            if isinstance(answer, Refused) and answer.reason == "closed":
                await self._closed(reading)
                return
            if isinstance(answer, Refused) and answer.reason == "wrong_type":
                await self._end(reading, self._error(reading, f"what stands there is no {queue.kind}"))
                return
            if not isinstance(answer, Value):
                raise TargetAway(_why(answer))
            found = answer.value
        if found.messages:
            size = found.size if found.size > policy.MAX_MESSAGE_BYTES else None  # then it is the beginning of one
            said = policy.told(reading.asked, queue, found.messages, wall_ms(), size=size)
            await self._end(reading, said)

    def _call(self, reading: Reading) -> Call[Read]:
        queue, most = reading.queue, policy.MAX_MESSAGE_BYTES
        if queue.kind == "list":
            return queues.take(queue.name, reading.wait.digest, queue.batch, most)
        return queues.read(queue.name, reading.wait.position, queue.batch, most)

    async def _closed(self, reading: Reading) -> None:
        """The wait was over, as far as its queue's server knows: another host took over; or plaita's own server has
        lost that since, and the execution waits again."""
        wait = reading.wait
        if not await served(self._host, bridges.still(self._host.keys, wait, self._holder)):
            self.remove(wait.digest)
            return
        answer = await self._runner.run(queues.reopen(reading.queue.name, wait.digest))
        if not isinstance(answer, Value):
            raise TargetAway(_why(answer))
        reading.begun = False  # its record went with the end
        self._host.tell("info", "queue.reopened", target=self.target.place, execution_id=wait.execution_id)

    async def _begin(self, reading: Reading) -> bool:
        """Leave the record without which no message is touched; False: the wait is ended instead."""
        wait, queue = reading.wait, reading.queue
        if self._own:
            refusal = policy.name_refusal(queue.name, self._namespace(wait))
            if refusal is not None:
                await self._end(reading, self._error(reading, refusal))
                return False
        position = ""
        if queue.kind == "stream":
            answer = await self._runner.run(queues.position(queue.name))
            if isinstance(answer, Refused) and answer.reason == "wrong_type":
                await self._end(reading, self._error(reading, "what stands there is no stream"))
                return False
            if not isinstance(answer, Value):
                raise TargetAway(_why(answer))
            age_ms = reading.age_ms + math.ceil((asyncio.get_running_loop().time() - reading.asked_at) * 1000)
            position = policy.stream_position(*answer.value, age_ms)
        reading.wait = await served(self._host, bridges.begin(self._host.keys, wait, position))
        reading.begun = True
        return True

    async def _end(self, reading: Reading, said: Told) -> None:
        wait = reading.wait
        woken = await end_wait(self._host, wait, said)
        self.remove(wait.digest)
        self._host.tell("debug", "queue.message", target=self.target.place, queue=reading.queue.name, woken=woken)
        if reading.begun:
            await self.settle(wait, reading.queue, said.becomes if woken else "back")
        else:
            await served(self._host, bridges.done(self._host.keys, wait.digest, self._holder))

    def _error(self, reading: Reading, why: str) -> Told:
        return policy.told_error(reading.asked, reading.queue, why, wall_ms())

    # -- the server --------------------------------------------------------------------------------

    def _namespace(self, wait: Wait) -> str:
        return self._host.keys.for_tenant(wait.tenant).ns

    def _changed(self, state: RunnerState) -> None:
        self._own = None  # the name may lead elsewhere now

    async def _owns(self) -> bool:
        """Whether plaita's own data is on that server, by whatever name it is reached. Raises TargetAway, NotServed."""
        if self._own is None:
            theirs = await self._runner.run(bridges.server_run("writer"))
            if not isinstance(theirs, Value):
                raise TargetAway(_why(theirs))
            self._own = theirs.value == await served(self._host, bridges.server_run())
        return self._own

    async def _listen(self) -> None:
        channels = {each.queue.name for each in self.readings.values() if each.queue.kind == "pubsub" and each.begun}
        if self._listener is not None and self._listener.lost.done():
            self._listener = None
        if self._listener is None and channels:
            try:
                self._listener = await Listener.open(self._runner.endpoint, "plaita-bridge-channels", self._heard)
            except GreetingError as error:
                raise TargetAway(error.answer.error) from None
        if self._listener is not None:
            self._listener.want(channels)

    def _heard(self, channel: str, message: bytes) -> None:
        for reading in self.readings.values():
            if reading.queue.kind == "pubsub" and reading.queue.name == channel:
                reading.hear(message)

    def _tell(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        self._host.count("queue_target_failures")
        began = self.away or Away(now, wall_ms(), why)
        self.away = replace(began, why=why)
        if self._told_at is None or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            self._host.tell("warning", "queue.target_away", target=self.target.place, waits=len(self.readings), why=why)

    def _well(self) -> None:
        self._failures = 0
        self.away = None
        if self._told_at is not None:
            self._told_at = None
            self._host.tell("info", "queue.target_back", target=self.target.place)


def _why(answer: Refused | Unknown | Unavailable | Value[object]) -> str:
    if isinstance(answer, Unknown | Unavailable):
        return answer.error
    return f"{answer.reason} {answer.detail}".strip() if isinstance(answer, Refused) else ""
