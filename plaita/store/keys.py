"""Every key name of plaita, in one place. No other module spells a key.

``{ns}`` is the prefix for the default (or empty) tenant, ``prefix:tenant`` for any other. Ids stand in keys
percent-encoded (``ids.key_part``), so ``:`` only ever separates. Two kinds of names could still meet and are kept
apart:

* an execution id that is one of ``RESERVED_IDS`` would meet ``{ns}:execution:index``; its first character is
  percent-encoded (``index`` -> ``%69ndex``), which no other id can produce, since ``%`` itself is encoded;
* a tenant that is one of ``RESERVED_TENANTS`` would meet a key of the default tenant; it is refused (``check_tenant``).

The Lua twin is ``scripts/lib/key_part.lua``; a test holds them together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from plaita import ids
from plaita.errors import InputError
from plaita.policy.event_index import Places

DEFAULT_TENANT = "default"
DEFAULT_QUEUE = "plaita:flow:queue"
DEFAULT_GROUP = "plaita-workers"
STATUSES = ("pending", "running", "suspended", "completed", "error", "cancelled")
TERMINAL = frozenset({"completed", "error", "cancelled"})

LOOKED_FOR = frozenset({"redis_queue"})
"""Types of services whose hosts look for the tasks of all tenants, and drop there what an execution left behind."""

RESERVED_IDS = frozenset({"index", "expiry"})
RESERVED_TENANTS = frozenset(
    {
        "approval", "control", "credentials", "delay", "delayed", "dlq", "event", "event_filter", "event_reconcile",
        "events", "exec_tombstone", "execution", "flow", "flow_list", "flow_versions", "http_callback", "kafka_queue",
        "logs", "queue", "quota", "redis_queue", "registry", "schedule", "schedules", "service", "sse", "start-dedup",
        "subscription", "tenant_quota", "tenant_status", "token", "userqueue", "wake",
    }
)  # fmt: skip


def _short_digest(value: str) -> str:
    """A text of any characters and any length as a part of keys."""
    return hashlib.sha256(value.encode()).hexdigest()[:32]


@lru_cache(maxsize=8192)
def execution_part(execution_id: str) -> str:
    """An execution id as the last part of its keys."""
    part = ids.key_part(execution_id)
    return f"%{ord(part[0]):02X}{part[1:]}" if part in RESERVED_IDS else part


def check_tenant(value: object) -> str:
    """The tenant id in NFC, ``default`` for the empty one. Raises InputError (DECISIONS 18)."""
    if value in ("", None):
        return DEFAULT_TENANT
    tenant = ids.check_id(value, "tenant")
    for character in ":/":
        if character in tenant:
            raise InputError(f"tenant: {tenant!r} has the character {character!r}, which no tenant id may have")
    if tenant in (".", ".."):
        raise InputError(f"tenant: {tenant!r} would mean another place where it names a folder; take another")
    if tenant in RESERVED_TENANTS:
        raise InputError(f"tenant: {tenant!r} is a word that plaita's own keys use; take another")
    return tenant


@dataclass(frozen=True)
class Keys:
    """The names of one tenant on one queue. ``for_tenant`` gives those of another tenant on the same queue."""

    prefix: str = "plaita"
    tenant: str = DEFAULT_TENANT
    queue: str = DEFAULT_QUEUE
    group: str = DEFAULT_GROUP
    dlq: str | None = None

    def for_tenant(self, tenant: str) -> Keys:
        return self if (tenant or DEFAULT_TENANT) == self.tenant else replace(self, tenant=tenant or DEFAULT_TENANT)

    # -- the tenant's --------------------------------------------------------------------------

    @cached_property
    def ns(self) -> str:
        if self.tenant in ("", DEFAULT_TENANT):
            return self.prefix
        return f"{self.prefix}:{ids.key_part(self.tenant)}"

    def row(self, execution_id: str) -> str:
        return f"{self.ns}:execution:{execution_part(execution_id)}"

    def of_execution(self, word: str, execution_id: str) -> str:
        """``lease``, ``fence``, ``fencegen``, ``cancel``, ``noderefetch``, ``nofail``, ``g1wakeups`` or
        ``affinityhandover`` of one."""
        return f"{self.ns}:execution:{word}:{execution_part(execution_id)}"

    def lease(self, execution_id: str) -> str:
        return self.of_execution("lease", execution_id)

    def fence(self, execution_id: str) -> str:
        return self.of_execution("fence", execution_id)

    def fencegen(self, execution_id: str) -> str:
        return self.of_execution("fencegen", execution_id)

    def cancel(self, execution_id: str) -> str:
        return self.of_execution("cancel", execution_id)

    def noderetry(self, execution_id: str, node_id: str | None) -> str:
        """Without a node: the per-execution key (ledger S11)."""
        base = self.of_execution("noderetry", execution_id)
        return base if node_id is None else f"{base}:{ids.key_part(node_id)}"

    def index(self, status: str | None = None) -> str:
        return f"{self.ns}:execution:index:{status}" if status else f"{self.ns}:execution:index"

    @property
    def expiry(self) -> str:
        return f"{self.ns}:execution:expiry"

    @property
    def flows_ns(self) -> str:
        """Where the tenant's flow definitions stand: beside its executions, but for who keeps them apart."""
        return self.ns

    def flow_body(self, flow_hash: str) -> str:
        return f"{self.flows_ns}:flow:body:{flow_hash}"

    def flow_versions(self, flow_id: str) -> str:
        return f"{self.flows_ns}:flow_versions:{ids.key_part(flow_id)}"

    def flow_meta(self, flow_id: str) -> str:
        return f"{self.flows_ns}:flow:meta:{ids.key_part(flow_id)}"

    @property
    def flow_list(self) -> str:
        return f"{self.flows_ns}:flow_list"

    @property
    def credentials(self) -> str:
        """A hash: name -> sealed value."""
        return f"{self.ns}:credentials"

    # -- waits and events ------------------------------------------------------------------------

    def event_index(self, digest: str) -> str:
        """A set: ids of the executions whose waits the same events end (DECISIONS 28)."""
        return f"{self.ns}:event:index:{digest}"

    def event_key_sets(self, event_type: str) -> str:
        """A hash: key set of filters -> the set of who uses it."""
        return f"{self.ns}:event:keysets:{_short_digest(event_type)}"

    def events_kept(self, digest: str) -> str:
        """A list, the oldest first: id, when, log id and data of correlated events (DECISIONS 27)."""
        return f"{self.ns}:event:kept:{digest}"

    def event_seen(self, event_id: str) -> str:
        return f"{self.ns}:event:seen:{ids.key_part(event_id)}"

    def event_users(self, event_type: str, key_set: str) -> str:
        """A set: ids of the executions whose waits for this type look at this key set."""
        return f"{self.ns}:event:users:{_short_digest(event_type)}:{_short_digest(key_set)}"

    def index_places(self, event_type: str, places: Places) -> list[str]:
        """All that ``lib/subscriptions.lua`` keeps of a wait: hash of key sets, key set, who uses it, sets of the
        index."""
        users = self.event_users(event_type, places.key_set)
        sets = [self.event_index(digest) for digest in places.digests]
        return [self.event_key_sets(event_type), places.key_set, users, *sets]

    def tasks(self, task_type: str) -> str:
        """A sorted set: ids of what a service has to do, by the time it was asked."""
        return f"{self.ns}:service:{task_type}:tasks"

    def task_of(self, task_type: str) -> str:
        """A hash: task id -> execution id."""
        return f"{self.ns}:service:{task_type}:of"

    def tasks_of_all(self, task_type: str) -> str:
        """A sorted set: ``<tenant>:<task id>`` of all tenants, by the time it was asked; a tenant has no ``:``."""
        return f"{self.queue}:service:{task_type}:tasks"

    def task_places(self, task_type: str, task_id: str) -> list[str]:
        """What ``lib/subscriptions.lua`` keeps of a service's task."""
        places = [self.tasks(task_type), self.task_of(task_type)]
        if task_type in LOOKED_FOR:
            places += [self.tasks_of_all(task_type), f"{self.tenant or DEFAULT_TENANT}:{task_id}"]
        return [*places, task_id]

    @property
    def early_callbacks(self) -> str:
        """A hash: HTTP calls that came before the executions of all tenants waited for them (DECISIONS 30)."""
        return f"{self.queue}:callbacks:early"

    @property
    def bridges(self) -> str:
        """A hash: digest of a wait -> what a host has begun to do for it on another server (DECISIONS 41)."""
        return f"{self.queue}:bridges"

    def bridge_lock(self, digest: str) -> str:
        """Who reads a queue for a wait."""
        return f"{self.queue}:bridges:lock:{digest}"

    @property
    def event_subscriptions(self) -> str:
        """A hash: subscription id -> record, of programs that use ``plaita.event``. Executions' waits stand in rows."""
        return f"{self.ns}:event:subscriptions"

    @property
    def event_cursor(self) -> str:
        """The log id up to which events were looked through again (ledger E3)."""
        return f"{self.ns}:event_reconcile:cursor"

    @property
    def event_log(self) -> str:
        """A stream of all events of all tenants, read by who wakes those that wait."""
        return f"{self.queue}:events"

    @property
    def event_last(self) -> str:
        """The id of the newest entry of the event log, by which a wait knows which events are older than it."""
        return f"{self.queue}:events:last"

    # -- schedules -----------------------------------------------------------------------------

    @property
    def schedules(self) -> str:
        """A hash: schedule id -> record (JSON)."""
        return f"{self.ns}:schedules"

    def schedule_fires(self, schedule_id: str) -> str:
        """A list: what became of its last due times, the latest first."""
        return f"{self.ns}:schedule:fires:{ids.key_part(schedule_id)}"

    @property
    def schedule_sequence(self) -> str:
        """A counter of runs by hand."""
        return f"{self.ns}:schedule:sequence"

    @property
    def schedules_due(self) -> str:
        """A sorted set of all tenants: ``schedule_member`` by its next due time, epoch ms."""
        return f"{self.queue}:schedules:due"

    @property
    def schedules_tenants(self) -> str:
        """A set: the tenants that have schedules of this queue, by which a lost due time is noticed."""
        return f"{self.queue}:schedules:tenants"

    @property
    def schedules_turn(self) -> str:
        """When somebody last looked for lost due times, epoch ms."""
        return f"{self.queue}:schedules:turn"

    def schedule_member(self, schedule_id: str) -> str:
        return f"{self.tenant or DEFAULT_TENANT}\0{schedule_id}"

    def start_dedup(self, dedup_key: str) -> str:
        return f"{self.ns}:start-dedup:{ids.key_part(dedup_key)}"

    # -- the platform's ------------------------------------------------------------------------

    def tombstone(self, execution_id: str) -> str:
        return f"{self.prefix}:exec_tombstone:{ids.key_part(execution_id)}"

    @property
    def wake(self) -> str:
        return f"{self.queue}:wake"

    def stream(self, letter: str) -> str:
        """``q`` the queue, ``w`` the wake stream: the letter that leases and calls carry."""
        if letter == "q":
            return self.queue
        if letter == "w":
            return self.wake
        raise ValueError(f"{letter!r} is no stream; q and w are")

    @property
    def dead_letters(self) -> str:
        return self.dlq or f"{self.queue}:dlq"

    def replay_mark(self, dlq_id: str) -> str:
        """That a dead letter of this stream was replayed. The stream's name stands as it is: the id ends the key."""
        return f"{self.prefix}:dlq:replay:{self.dead_letters}:{dlq_id}"

    @property
    def replay_audit(self) -> str:
        return f"{self.prefix}:dlq:replay:audit"

    @property
    def delayed(self) -> str:
        return f"{self.queue}:delayed"

    @property
    def delayed_body(self) -> str:
        return f"{self.queue}:delayed:body"

    def instance(self, instance_id: str) -> str:
        return f"{self.prefix}:registry:flow_worker:{ids.key_part(instance_id)}"

    def incarnation(self, instance_id: str) -> str:
        return f"{self.prefix}:registry:incarnation:{ids.key_part(instance_id)}"

    def deaths(self, instance_id: str) -> str:
        return f"{self.prefix}:registry:death:{ids.key_part(instance_id)}"

    @property
    def write_probe(self) -> str:
        return f"{self.prefix}:registry:write_probe"

    @property
    def tenant_status(self) -> str:
        """A hash: tenant -> active or disabled. Old consoles write it too (ledger T2)."""
        return f"{self.prefix}:tenant_status"

    @property
    def tenant_epoch(self) -> str:
        """Which deployment wrote the statuses."""
        return f"{self.tenant_status}:epoch"

    @property
    def tenant_quota(self) -> str:
        """A hash: tenant -> how many of its executions may run at a time."""
        return f"{self.prefix}:tenant_quota"

    @property
    def parked_tenants(self) -> str:
        """A set: whose carriers wait for a place (ledger T3)."""
        return f"{self.queue}:parked"

    def parked(self, letter: str) -> str:
        """The tenant's carriers of this stream that wait for a place; ``out``: those that were brought back."""
        return f"{self.parked_tenants}:{letter}:{ids.key_part(self.tenant or DEFAULT_TENANT)}"

    @property
    def instances(self) -> str:
        return f"{self.prefix}:registry:instances"
