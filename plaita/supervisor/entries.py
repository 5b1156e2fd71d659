"""What becomes of an entry of the queue that no execution in hand belongs to: acked, replaced, or let go to others.

Decides nothing: ``dispatch``, ``admission`` and ``affinity`` ask. Each is one call, so that the entry is either done
with or still pending in Redis.
"""

from __future__ import annotations

from plaita.clock import boot_ms
from plaita.policy.copies import continue_copy
from plaita.store import carriers
from plaita.store.call import Refused, Value
from plaita.store.carriers import Entry
from plaita.store.keys import Keys
from plaita.supervisor import logs
from plaita.supervisor.sender import Sender
from plaita.supervisor.stats import Stats


class Entries:
    """``consumer`` is the name entries are pending for; ``patience_ms``: how long a call may stay unanswered."""

    def __init__(self, consumer: str, patience_ms: int, keys: Keys, sender: Sender, stats: Stats) -> None:
        self._consumer = consumer
        self._patience_ms = patience_ms
        self._keys = keys
        self._sender = sender
        self._stats = stats

    async def ack(self, entry: Entry) -> None:
        """Ack and delete."""
        answer = await self._sender.send(carriers.ack(self._keys, entry.stream, entry.entry_id), until=self._soon())
        if isinstance(answer, Value):
            self._stats.add("acked")

    async def ack_refused(self, tenant: str, execution_id: str, entry: Entry, status: str) -> None:
        """Ack what a row in this status has no use for. If it is in another one by now, whoever reads next judges
        anew: after a retry or a wake this may be the only carrier left."""
        call = carriers.ack_refused(self._keys, tenant, execution_id, entry.stream, entry.entry_id, status)
        answer = await self._sender.send(call, until=self._soon())
        if isinstance(answer, Value):
            self._stats.add("acked")
        elif isinstance(answer, Refused):
            logs.info("refused.kept", execution_id=execution_id, entry_id=entry.entry_id, status=answer.detail)
            await self.let_others(entry)

    async def drop_disabled(self, keys: Keys, execution_id: str, entry: Entry) -> bool:
        """Ack a carrier of a disabled tenant (ledger T2). False where that is enabled by now: whoever reads next begins
        with it."""
        call = carriers.drop_disabled(keys, execution_id, entry.stream, entry.entry_id)
        answer = await self._sender.send(call, until=self._soon())
        if isinstance(answer, Value):
            self._stats.add("acked")
            return True
        if isinstance(answer, Refused):
            await self.let_others(entry)
        return False

    async def let_others(self, entry: Entry) -> None:
        """The lease ran out under us: whoever reads next may have the carrier at once, if still pending for us."""
        call = carriers.release(self._keys, self._consumer, entry.stream, entry.entry_id)
        await self._sender.send(call, until=self._soon())

    async def continue_other(self, keys: Keys, entry: Entry, execution_id: str, flow_id: str) -> None:
        """In the place of this carrier, one that continues another execution (ledger S2)."""
        copy = continue_copy(
            entry.fields, entry.entry_id, execution_id=execution_id, flow_id=flow_id, tenant_id=keys.tenant
        )
        call = carriers.replace(self._keys, entry.stream, entry.entry_id, "w", copy)
        if isinstance(await self._sender.send(call, until=self._soon()), Value):
            self._stats.add("acked")

    async def ack_duplicate(self, tenant: str, execution_id: str, entry: Entry) -> bool:
        """Ack a carrier whose execution its holder has with another one (ledger L5). False where that is not so any
        more: it stays pending, and whoever reads next may have it where the execution was let go meanwhile."""
        call = carriers.ack_duplicate(self._keys, tenant, execution_id, entry.stream, entry.entry_id)
        answer = await self._sender.send(call, until=self._soon())
        if isinstance(answer, Value):
            self._stats.add("acked")
            return True
        logs.info("duplicate.kept", execution_id=execution_id, entry_id=entry.entry_id, answer=answer)
        if isinstance(answer, Refused) and answer.reason == "not_leased":
            await self.let_others(entry)
        return False

    async def let_others_if_let_go(self, tenant: str, execution_id: str, lease_value: str, entry: Entry) -> None:
        """It met this lease and stays pending; if the execution was let go since, whoever reads next may have it."""
        call = carriers.release_if_let_go(
            self._keys, tenant, execution_id, lease_value, self._consumer, entry.stream, entry.entry_id
        )
        await self._sender.send(call, until=self._soon())

    async def release(self, entry: Entry, *, leaving: bool = True) -> None:
        """Let others have it at once: it was read, and nothing was begun (ledger R1). ``leaving``: because this host
        takes no more, not for want of an executor at this moment."""
        call = carriers.release(self._keys, self._consumer, entry.stream, entry.entry_id)
        answer = await self._sender.send(call, until=self._soon())
        level, event = (30, "drain-read-gate") if leaving else (10, "carrier.given_back")
        logs.log(level, event, entry_id=entry.entry_id, released=isinstance(answer, Value))

    def _soon(self) -> int:
        return boot_ms() + self._patience_ms
