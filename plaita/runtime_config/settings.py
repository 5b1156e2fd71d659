"""Which settings exist: names, bounds, defaults, and which generation each belongs to (ledger C1, C2).

Every field of the models is one setting; the ``Setting`` in its annotation says how it is spelled and how strict it is.
Must not: read anything. A setting is added here and nowhere else; flags, variables, file keys and docs follow.
"""

from __future__ import annotations

import os
import socket as sockets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from plaita.runtime_config.redis_url import check_redis_url
from plaita.runtime_config.values import (
    AbsolutePath,
    Identity,
    ModuleName,
    Number,
    RepoName,
    ServerPlace,
    Whole,
    as_duration_ms,
    as_log_level,
    as_module_list,
    as_name_list,
    check_base_url,
    check_callback_secret,
    check_epoch,
    check_identity,
    check_instance_id,
    check_key_prefix,
)

DEFAULT_REDIS_URL = "redis://localhost:6379/0"
MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its closing NUL
MIN_LEASE_TTL_SECONDS = 5  # DECISIONS 9
DAY_SECONDS = 86_400
_IDENTITY_RIGHT = "a name without spaces or control characters"

Group = Literal["family", "budget", "meaning", "appearance"]


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is spelled and judged.

    ``environment``: names in order of precedence. ``about``: what it does, for help and docs. ``right``: what a right
    value looks like, for messages.
    ``flag``: its command line form; None when there is none. ``optional``: nonsense warns instead of stopping.
    ``low``/``high``: numbers outside are pulled to the bound with a warning (REFERENCE 8.3). ``secret``: masked
    everywhere, and readable from a file named by ``<variable>_FILE``. ``switch``: only the exact text ``1`` is yes.
    ``inverted``: flag and environment say "no", the field says "yes". ``group``: which generation it belongs to (C2).
    """

    environment: tuple[str, ...]
    about: str
    right: str
    flag: str | None = None
    optional: bool = False
    low: float | None = None
    high: float | None = None
    secret: bool = False
    switch: bool = False
    inverted: bool = False
    empty_is_unset: bool = False
    group: Group = "meaning"


def _default_executors() -> int:
    return len(os.sched_getaffinity(0))


_WEAKENS = "weakens the promise; accepted for old installations"


def _rollback(name: str, about: str) -> Setting:
    """A switch back to how things were before."""
    return Setting((f"PLAITA_DISABLE_{name}",), about, "1 or 0", optional=True, switch=True)


class ConnectionConfig(BaseModel):
    """Where plaita's data is: what every command and every process needs. ``warnings`` were met on the way here;
    ``sources`` says of each field that is no default where its value came from."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    redis_url: Annotated[
        str,
        AfterValidator(check_redis_url),
        Field(repr=False),
        Setting(
            ("PLAITA_REDIS_URL", "REDIS_URL"),
            "the Redis or Valkey server",
            "a URL: redis://[user:password@]host:6379/0, rediss://, unix:///path or redis+sentinel://host:26379,.../service",
            flag="--redis-url",
            secret=True,
        ),
    ] = DEFAULT_REDIS_URL
    embedded: Annotated[
        AbsolutePath | None,
        Setting(
            ("PLAITA_EMBEDDED",),
            "run the bundled Valkey server in this folder instead",
            "a folder that can be written",
            flag="--embedded",
            empty_is_unset=True,
        ),
    ] = None
    queue_name: Annotated[
        Identity,
        Setting(
            ("PLAITA_QUEUE_NAME", "QUEUE_NAME"),
            "the stream of the task queue",
            _IDENTITY_RIGHT,
            flag="--queue-name",
            group="family",
        ),
    ] = "plaita:flow:queue"
    consumer_group: Annotated[
        Identity,
        Setting(
            ("PLAITA_CONSUMER_GROUP",), "its consumer group", _IDENTITY_RIGHT, flag="--consumer-group", group="family"
        ),
    ] = "plaita-workers"
    dlq_key: Annotated[
        Identity,
        Setting(
            ("PLAITA_DLQ_KEY",),
            "the stream of dead letters (default: QUEUE:dlq)",
            _IDENTITY_RIGHT,
            flag="--dlq-key",
            group="family",
        ),
    ] = ""
    key_prefix: Annotated[
        str,
        AfterValidator(check_key_prefix),
        Setting(
            ("PLAITA_KEY_PREFIX",),
            "the first part of every other key",
            "a name without spaces, such as plaita or {plaita}",
            flag="--key-prefix",
            group="family",
        ),
    ] = "plaita"
    warnings: Annotated[tuple[str, ...], Field(exclude=True, repr=False)] = ()
    sources: Annotated[dict[str, str], Field(exclude=True, repr=False)] = {}

    @model_validator(mode="before")
    @classmethod
    def _derived(cls, data: Any) -> Any:
        """Defaults that follow from other values: filled in before each is judged by itself."""
        values = dict(data)
        values.setdefault("dlq_key", f"{values.get('queue_name', 'plaita:flow:queue')}:dlq")
        if "instance_id" in cls.model_fields:
            values.setdefault("instance_id", sockets.gethostname())
            values.setdefault("consumer_name", values["instance_id"])
        return values

    def __str__(self) -> str:
        return repr(self)


class ClientConfig(ConnectionConfig):
    """What a command or a library client is told: where the data is, and whose."""

    tenant: Annotated[
        str,
        AfterValidator(check_identity),
        Setting(("PLAITA_TENANT",), "whose flows and executions", "a tenant id", flag="--tenant", group="appearance"),
    ] = "default"


# How long what is over is remembered (ledger D2, D3, D7): supervisors keep to it, and so do commands that delete.
TaskMaxAge = Annotated[
    Whole,
    Field(ge=0, le=3650 * DAY_SECONDS),
    Setting(
        ("PLAITA_TASK_MAX_AGE_SECONDS",),
        "older carriers are dropped",
        "a whole number of seconds; 0 switches the limit off",
        group="budget",
    ),
]
StateTtl = Annotated[
    Number,
    Field(ge=0, le=3650),
    Setting(
        ("PLAITA_EXECUTION_STATE_TTL_DAYS",),
        "how long finished executions are kept",
        "a number of days; 0 keeps finished executions for ever",
    ),
]
TombstoneTtl = Annotated[
    Whole,
    Field(gt=0, le=3650 * DAY_SECONDS),
    Setting(
        ("PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS",),
        "how long a deleted execution stays deleted",
        "a whole number of seconds above 0",
        optional=True,
    ),
]

# Which deployment this is: supervisors compare it with what stands beside the statuses of tenants, and who writes a
# status writes it too (ledger T2).
DeploymentEpoch = Annotated[
    str | None,
    AfterValidator(check_epoch),
    Setting(
        ("PLAITA_DEPLOYMENT_EPOCH",),
        "the deployment that this host belongs to; statuses of tenants that another one wrote are not trusted",
        "a number or a text that grows with each deployment, such as 42 or 2026-11-30",
    ),
]


class RetentionConfig(ClientConfig):
    """What a command is told that deletes, ends or replays: beside the connection, how long things are remembered."""

    task_max_age_seconds: TaskMaxAge = 30 * DAY_SECONDS
    execution_state_ttl_days: StateTtl = 30.0
    execution_tombstone_ttl_seconds: TombstoneTtl = 30 * DAY_SECONDS


class TenantConfig(RetentionConfig):
    """What a command is told that says something of tenants, or deletes one (ledger T2, T4)."""

    deployment_epoch: DeploymentEpoch = None


class CredentialConfig(ClientConfig):
    """What a program is told that keeps credentials (ledger T1)."""

    credential_key: Annotated[
        str | None,
        Field(repr=False),
        Setting(
            ("PLAITA_CREDENTIAL_KEY",),
            "what stored credentials are encrypted with; of several, separated by commas, the first encrypts",
            "a Fernet key: 32 bytes in URL-safe base64",
            secret=True,
            empty_is_unset=True,
            group="appearance",
        ),
    ] = None


class SupervisorConfig(ConnectionConfig):
    """Everything ``plaita-supervisor run`` can be told.

    Units are in the names; ``drain_timeout``, ``kill_grace`` and ``template_deadline`` are seconds.
    """

    executors: Annotated[
        Whole,
        Field(ge=1, le=1024),
        Setting(
            ("PLAITA_EXECUTORS", "PLAITA_WORKER_CONCURRENCY"),
            "how many steps run at a time (default: the CPUs this process may use)",
            "a whole number from 1 to 1024",
            flag="--executors",
        ),
    ] = Field(default_factory=_default_executors)
    consumer_name: Annotated[
        Identity,
        Setting(
            ("PLAITA_CONSUMER_NAME",),
            "the name in the consumer group (default: the instance id)",
            _IDENTITY_RIGHT,
            flag="--consumer-name",
            group="appearance",
        ),
    ] = ""
    instance_id: Annotated[
        str,
        AfterValidator(check_instance_id),
        Setting(
            ("PLAITA_INSTANCE_ID",),
            "the name of this supervisor, unique among the living (default: the host name)",
            "1 to 200 letters, digits and . _ - : /",
            flag="--instance-id",
            group="appearance",
        ),
    ] = ""
    claim_min_idle_ms: Annotated[
        Whole,
        Field(ge=100, le=7 * DAY_SECONDS * 1000),
        Setting(
            ("PLAITA_CLAIM_MIN_IDLE_MS",),
            "how long a carrier must lie idle before another host takes it",
            "a whole number of milliseconds, 100 to 7 days",
            flag="--claim-min-idle-ms",
        ),
    ] = 60_000
    lease_ttl_seconds: Annotated[
        Whole,
        Field(ge=MIN_LEASE_TTL_SECONDS, le=DAY_SECONDS),
        Setting(
            ("PLAITA_LEASE_TTL_SECONDS",),
            "life of the lease on a running execution",
            "a whole number of seconds from 5 to 86400",
            flag="--lease-ttl-seconds",
            group="budget",
        ),
    ] = 120
    max_deliveries: Annotated[
        Whole,
        Setting(
            ("PLAITA_MAX_DELIVERIES",),
            "lost steps in a row of one node before its execution ends in error",
            "a whole number, 1 or more",
            flag="--max-deliveries",
            low=1,
            high=1_000_000,
            group="budget",
        ),
    ] = 5
    dlq_max_len: Annotated[
        Whole,
        Setting(
            ("PLAITA_DLQ_MAX_LEN",),
            "dead letters kept",
            "a whole number, 1 or more",
            optional=True,
            low=1,
            high=100_000_000,
            group="budget",
        ),
    ] = 1000
    task_max_age_seconds: TaskMaxAge = 30 * DAY_SECONDS
    execution_state_ttl_days: StateTtl = 30.0
    execution_tombstone_ttl_seconds: TombstoneTtl = 30 * DAY_SECONDS
    deployment_epoch: DeploymentEpoch = None
    tenant_status_epoch_strict: Annotated[
        bool,
        Setting(
            ("PLAITA_TENANT_STATUS_EPOCH_STRICT",),
            "0: take the statuses of tenants whichever deployment wrote them",
            "1 or 0",
            switch=True,
            empty_is_unset=True,
        ),
    ] = True
    read_block_ms: Annotated[
        Whole,
        Setting(
            ("PLAITA_READ_BLOCK_MS",),
            "longest blocking read of the queue",
            "a whole number of milliseconds from 100 to 1000",
            flag="--read-block-ms",
            low=100,
            high=1000,
        ),
    ] = 1000
    drain_timeout: Annotated[
        Number,
        Setting(
            ("PLAITA_WORKER_DRAIN_TIMEOUT", "PLAITA_DRAIN_TIMEOUT"),
            "time that running steps get when the supervisor stops",
            "a number of seconds, 0 or more",
            flag="--drain-timeout",
            optional=True,
            low=0,
            high=DAY_SECONDS,
        ),
    ] = 30.0
    kill_grace: Annotated[
        Number,
        Field(ge=0, le=3600),
        Setting(
            ("PLAITA_KILL_GRACE",),
            "time between asking a step to stop and killing it",
            "a number of seconds from 0 to 3600",
            flag="--kill-grace",
        ),
    ] = 5.0
    template_deadline: Annotated[
        Number,
        Field(gt=0, le=3600),
        Setting(
            ("PLAITA_TEMPLATE_DEADLINE",),
            "how long the imports of the template may take, at the start and at a reload",
            "a number of seconds over 0, at most 3600",
            flag="--template-deadline",
        ),
    ] = 120.0
    min_free_disk_gib: Annotated[
        Number,
        Setting(
            ("PLAITA_WORKER_MIN_FREE_DISK_GIB", "PLAITA_MIN_FREE_DISK_GIB"),
            "below this no new work is taken; once shut, it opens a tenth above (at most 0.25 GiB)",
            "a number of GiB; 0 switches the guard off",
            flag="--min-free-disk-gib",
            optional=True,
            low=0,
        ),
    ] = 0.0
    min_free_inodes_percent: Annotated[
        Number,
        Setting(
            ("PLAITA_WORKER_MIN_FREE_INODES_PERCENT", "PLAITA_MIN_FREE_INODES_PERCENT"),
            "the same for inodes, while the guard is on; once shut, it opens a tenth above",
            "a number of percent from 0 to 100; 0 leaves inodes out",
            flag="--min-free-inodes-percent",
            optional=True,
            low=0,
            high=100,
        ),
    ] = 1.0
    disk_guard_poll_seconds: Annotated[
        Number,
        Setting(
            ("PLAITA_WORKER_DISK_GUARD_POLL_SECONDS", "PLAITA_DISK_GUARD_POLL_SECONDS"),
            "how often the disk is looked at",
            "a number of seconds from 0.2 to 3600",
            flag="--disk-guard-poll-seconds",
            optional=True,
            low=0.2,
            high=3600,
        ),
    ] = 15.0
    disk_guard_path: Annotated[
        AbsolutePath,
        Field(validate_default=True),
        Setting(
            ("PLAITA_WORKER_DISK_GUARD_PATH", "PLAITA_DISK_GUARD_PATH"),
            "the disk that is watched",
            "a path that exists on the file system to watch",
            flag="--disk-guard-path",
        ),
    ] = "."
    metrics_port: Annotated[
        Whole,
        Field(le=65535),
        Setting(
            ("PLAITA_METRICS_PORT",),
            "port of the Prometheus metrics",
            "a port from 1 to 65535; 0 switches metrics off",
            flag="--metrics-port",
            optional=True,
            low=0,
            group="appearance",
        ),
    ] = 0
    metrics_host: Annotated[
        Identity,
        Setting(
            ("PLAITA_METRICS_HOST",), "address of the Prometheus metrics", "an address to bind", group="appearance"
        ),
    ] = "0.0.0.0"
    socket: Annotated[
        AbsolutePath,
        Setting(
            ("PLAITA_SOCKET",),
            "the control socket (default: in the runtime directory)",
            f"a path of at most {MAX_SOCKET_PATH_BYTES} bytes",
            flag="--socket",
            group="appearance",
        ),
    ] = ""
    preload: Annotated[
        tuple[ModuleName, ...],
        BeforeValidator(as_module_list),
        Setting(
            ("PLAITA_PRELOAD", "PLAITA_NODE_MODULES"),
            "modules with node types, imported by the executors; the flag may be given again",
            "Python module names, separated by commas",
            flag="--preload",
        ),
    ] = ()
    deny_repos: Annotated[
        tuple[RepoName, ...],
        BeforeValidator(as_name_list),
        Setting(
            ("PLAITA_WORKER_DENY_REPOS",),
            "tasks for these repositories are left to other hosts; of a path, its last name counts",
            "names of repositories, separated by commas",
        ),
    ] = ()
    max_steps_per_executor: Annotated[
        Whole,
        Field(ge=0, le=1_000_000_000),
        Setting(
            ("PLAITA_MAX_STEPS_PER_EXECUTOR",),
            "an executor is replaced after so many steps",
            "a whole number; 0 switches the limit off",
            flag="--max-steps-per-executor",
        ),
    ] = 0
    max_executor_rss_mib: Annotated[
        Whole,
        Field(ge=0, le=16_777_216),
        Setting(
            ("PLAITA_MAX_EXECUTOR_RSS_MIB",),
            "a step whose executor uses more memory is ended",
            "a whole number of MiB; 0 switches the limit off",
            flag="--max-executor-rss-mib",
        ),
    ] = 0
    isolate: Annotated[
        Literal["tenant", "carrier", "step"],
        Setting(("PLAITA_ISOLATE",), "who may share an executor process", "tenant, carrier or step", flag="--isolate"),
    ] = "tenant"
    executor_user: Annotated[
        str | None,
        Setting(
            ("PLAITA_EXECUTOR_USER",),
            "the user that node code runs as (needs root)",
            "the name of a user of this host",
            flag="--executor-user",
            empty_is_unset=True,
        ),
    ] = None
    default_node_timeout_ms: Annotated[
        int | None,
        Field(ge=1, le=3650 * DAY_SECONDS * 1000),
        BeforeValidator(as_duration_ms),
        Setting(
            ("PLAITA_DEFAULT_NODE_TIMEOUT",),
            "limit of a node that names none",
            "milliseconds, an ISO 8601 duration such as PT30S, or off",
        ),
    ] = None
    registry: Annotated[
        bool,
        Setting(
            ("PLAITA_NO_REGISTRY",),
            "--no-registry: do not announce this supervisor",
            "1 or 0",
            flag="--no-registry",
            switch=True,
            inverted=True,
        ),
    ] = True
    services: Annotated[
        bool,
        Setting(
            ("PLAITA_NO_SERVICES",),
            "--no-services: read no events, run no services; timers are moved all the same",
            "1 or 0",
            flag="--no-services",
            switch=True,
            inverted=True,
        ),
    ] = True
    redis_node_targets: Annotated[
        tuple[ServerPlace, ...],
        BeforeValidator(as_name_list),
        Setting(
            ("PLAITA_REDIS_NODE_TARGETS",),
            "servers whose queues redis_queue nodes may wait for; the same on all hosts with services; none by default",
            "host:port or absolute paths of unix sockets, separated by commas",
        ),
    ] = ()
    callback_secret: Annotated[
        str | None,
        AfterValidator(check_callback_secret),
        Field(repr=False),
        Setting(
            ("PLAITA_CALLBACK_SECRET",),
            "what the URLs of http_callback nodes are made with; the same on all hosts, and where the calls arrive",
            "a text of 16 to 1024 printable characters",
            secret=True,
            empty_is_unset=True,
        ),
    ] = None
    callback_base_url: Annotated[
        str,
        AfterValidator(check_base_url),
        Setting(
            ("PLAITA_CALLBACK_BASE_URL",),
            "what those URLs begin with: where others reach the HTTP server that takes the calls",
            "a URL such as https://flows.example, without user, query or fragment",
            empty_is_unset=True,
        ),
    ] = ""
    quiet: Annotated[
        bool,
        Setting(
            ("PLAITA_QUIET",),
            "log warnings and errors only",
            "1 or 0",
            flag="--quiet",
            optional=True,
            switch=True,
            group="appearance",
        ),
    ] = False
    langfuse: Annotated[
        bool,
        Setting(
            ("PLAITA_WORKER_LANGFUSE", "PLAITA_LANGFUSE"),
            "send traces to Langfuse",
            "1 or 0",
            flag="--langfuse",
            optional=True,
            switch=True,
        ),
    ] = False
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        BeforeValidator(as_log_level),
        Setting(
            ("PLAITA_LOG_LEVEL",),
            "which events are logged",
            "DEBUG, INFO, WARNING, ERROR or CRITICAL",
            flag="--log-level",
            optional=True,
            group="appearance",
        ),
    ] = "INFO"
    loop: Annotated[
        Literal["uvloop", "asyncio"],
        Setting(
            ("PLAITA_LOOP",), "the event loop", "uvloop or asyncio", flag="--loop", optional=True, group="appearance"
        ),
    ] = "uvloop"
    disable_affinity: Annotated[
        bool, _rollback("AFFINITY", "start tasks whose repository is a path that this host does not have")
    ] = False
    disable_lease_watchdog: Annotated[bool, _rollback("LEASE_WATCHDOG", _WEAKENS)] = False
    disable_holder_liveness: Annotated[bool, _rollback("HOLDER_LIVENESS", _WEAKENS)] = False


def settings_of(model: type[ConnectionConfig]) -> dict[str, Setting]:
    """The ``Setting`` of each field of a model, in the model's order: for the loader, the commands and the tests."""
    found: dict[str, Setting] = {}
    for name, field in model.model_fields.items():
        setting = next((item for item in field.metadata if isinstance(item, Setting)), None)
        if setting is not None:
            found[name] = setting
    return found


def every_setting() -> dict[str, Setting]:
    """All settings of all roles: what the file and the environment may name."""
    return settings_of(CredentialConfig) | settings_of(SupervisorConfig)
