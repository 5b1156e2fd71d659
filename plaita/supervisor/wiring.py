"""How a carrier's parts are put together from the settings: entries, admission, settler, dead letters, dispatch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from plaita.policy import retention
from plaita.policy.generations import Stamps
from plaita.runtime_config import Generations, SupervisorConfig
from plaita.services.manager import ServiceManager
from plaita.store.keys import Keys
from plaita.store.runner_async import AsyncRunner
from plaita.supervisor.admission import Admission, AdmissionSettings
from plaita.supervisor.affinity import Affinity
from plaita.supervisor.breaker import Breaker
from plaita.supervisor.consumer import ConsumerSettings
from plaita.supervisor.dead_letters import DeadLetters
from plaita.supervisor.dispatch import Dispatch, DispatchSettings
from plaita.supervisor.entries import Entries
from plaita.supervisor.flow_cache import FlowCache
from plaita.supervisor.lease_keeper import LeaseKeeper
from plaita.supervisor.paths import Paths
from plaita.supervisor.pool import PoolSettings
from plaita.supervisor.sender import Sender
from plaita.supervisor.service_host import Lent
from plaita.supervisor.settle import Settler, SettleSettings
from plaita.supervisor.stats import Stats
from plaita.supervisor.stepping import Stepper, StepPool, StepSettings
from plaita.supervisor.tenant_gate import TenantGate, TenantSettings

CONTEXT_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Way:
    """The parts that a carrier passes through."""

    admission: Admission
    entries: Entries
    tenants: TenantGate
    dispatch: Dispatch
    breaker: Breaker


def keys_of(config: SupervisorConfig) -> Keys:
    """The key names of the default tenant on this host's queue."""
    return Keys(prefix=config.key_prefix, queue=config.queue_name, group=config.consumer_group, dlq=config.dlq_key)


def expected_epoch(config: SupervisorConfig) -> str:
    """Of the tenant statuses; '' where none is looked at (ledger T2)."""
    return (config.deployment_epoch or "") if config.tenant_status_epoch_strict else ""


def pool_settings(config: SupervisorConfig) -> PoolSettings:
    """Zeros of the settings are limits that are off."""
    return PoolSettings(
        size=config.executors,
        kill_grace_s=config.kill_grace,
        max_steps=config.max_steps_per_executor or None,
        max_rss_mib=config.max_executor_rss_mib or None,
    )


def consumer_settings(config: SupervisorConfig, ids: Generations, holder: str) -> ConsumerSettings:
    """What is read from the queue, and in whose name."""
    return ConsumerSettings(
        consumer=config.consumer_name,
        holder=holder,
        claim_min_idle_ms=config.claim_min_idle_ms,
        read_block_ms=config.read_block_ms,
        config_family=ids.config_family,
        budget_generation=ids.budget_generation,
        adopt=config.registry,
        denied_repos=config.deny_repos,
    )


def build_way(
    config: SupervisorConfig,
    ids: Generations,
    holder: str,
    keys: Keys,
    sender: Sender,
    pool: StepPool,
    keeper: LeaseKeeper,
    stats: Stats,
    *,
    leaving: Callable[[], bool],
    holder_record: Callable[[str], Awaitable[tuple[str, str] | None]],
) -> Way:
    """All parts of a carrier's way, knowing each other."""
    lease_ttl_ms = config.lease_ttl_seconds * 1000
    dead_letters = DeadLetters(
        keys,
        sender,
        stats,
        maxlen=config.dlq_max_len,
        max_deliveries=config.max_deliveries,
        patience_ms=lease_ttl_ms,
    )
    entries = Entries(config.consumer_name, lease_ttl_ms, keys, sender, stats)
    settler = Settler(
        SettleSettings(
            consumer=config.consumer_name,
            holder=holder,
            lease_ttl_ms=lease_ttl_ms,
            max_deliveries=config.max_deliveries,
            retention_ms=retention.retention_ms(config.execution_state_ttl_days, config.task_max_age_seconds),
            dlq_maxlen=config.dlq_max_len,
            context_max_bytes=CONTEXT_MAX_BYTES,
        ),
        keys,
        sender,
        stats,
        dead_letters,
    )
    admission = Admission(
        AdmissionSettings(
            ours=Stamps(ids.config_family, ids.budget_generation),
            max_age_ms=config.task_max_age_seconds * 1000,
            denied_repos=frozenset(config.deny_repos),
        ),
        keys,
        sender,
        entries,
        stats,
        Affinity(
            keys,
            sender,
            stats,
            instance_id=config.instance_id,
            patience_ms=config.claim_min_idle_ms,
            step_back=sender.runner.unblock,
            paths=None if config.disable_affinity else Paths(),
        ),
    )
    tenants = TenantGate(
        TenantSettings(
            consumer=config.consumer_name,
            expected_epoch=expected_epoch(config),
            patience_ms=lease_ttl_ms,
            dlq_maxlen=config.dlq_max_len,
        ),
        keys,
        sender,
        entries,
        stats,
    )
    breaker = Breaker(stats)
    dispatch = Dispatch(
        DispatchSettings(
            holder=holder,
            lease_ttl_ms=lease_ttl_ms,
            max_deliveries=config.max_deliveries,
            registry=config.registry,
            ask_liveness=not config.disable_holder_liveness,
        ),
        keys,
        sender,
        Stepper(
            StepSettings(
                namespace=config.key_prefix,
                isolate=config.isolate,
                default_node_timeout_ms=config.default_node_timeout_ms,
                cancel_limit_ms=int(config.kill_grace * 1000),
                callback_secret=config.callback_secret,
                callback_base_url=config.callback_base_url,
            ),
            sender,
            pool,
            keeper,
            stats,
            leaving,
        ),
        keeper,
        FlowCache(sender),
        entries,
        settler,
        dead_letters,
        admission,
        tenants,
        breaker,
        stats,
        leaving=leaving,
        holder_record=holder_record,
    )
    return Way(admission, entries, tenants, dispatch, breaker)


def services_of(config: SupervisorConfig, keys: Keys, runner: AsyncRunner, stats: Stats) -> ServiceManager | None:
    """The services that run along with this host; None with ``--no-services``."""
    if not config.services:
        return None
    lent = Lent(keys, config.consumer_name, config.claim_min_idle_ms, runner, stats, config.redis_node_targets)
    return ServiceManager(lent)
