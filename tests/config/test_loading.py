"""C1: settings are read once, judged whole, and every fault names source, value and what would be right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from plaita.errors import ConfigError, InputError
from plaita.runtime_config import SupervisorConfig, load_client_config, load_runtime_config

MARKER = "S3cr3t-marker"


def load(environ: dict[str, str] | None = None, *, file: Path | None = None, **flags: Any) -> SupervisorConfig:
    return load_runtime_config("worker", flags=flags, environ=environ or {}, file=file)


def faults(environ: dict[str, str] | None = None, *, file: Path | None = None, **flags: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(environ, file=file, **flags)
    return caught.value.faults


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "plaita.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_C1_defaults_need_nothing() -> None:
    config = load()
    assert config.redis_url == "redis://localhost:6379/0"
    assert config.queue_name == "plaita:flow:queue"
    assert config.dlq_key == "plaita:flow:queue:dlq"
    assert config.executors == len(os.sched_getaffinity(0))
    assert config.instance_id == config.consumer_name == os.uname().nodename
    assert config.drain_timeout == 30.0
    assert config.kill_grace == 5.0
    assert config.isolate == "tenant"
    assert config.registry is True
    assert config.services is True
    assert config.warnings == ()
    assert config.sources == {}


def test_C1_precedence_is_flag_environment_file_default(toml: Any) -> None:
    file = toml("executors = 2\nmax_deliveries = 7\nread_block_ms = 300\n")
    environ = {"PLAITA_EXECUTORS": "3", "PLAITA_MAX_DELIVERIES": "8"}
    config = load(environ, file=file, executors="4")
    assert (config.executors, config.max_deliveries, config.read_block_ms) == (4, 8, 300)
    assert config.sources["executors"] == "flag --executors"
    assert config.sources["max_deliveries"] == "environment PLAITA_MAX_DELIVERIES"
    assert config.sources["read_block_ms"] == f"file {file}, key 'read_block_ms'"


def test_C1_what_follows_from_other_values() -> None:
    config = load(queue_name="jobs", instance_id="host-7")
    assert config.dlq_key == "jobs:dlq"
    assert config.consumer_name == "host-7"
    assert load(queue_name="jobs", dlq_key="dead").dlq_key == "dead"


@pytest.mark.parametrize(
    ("variable", "field", "value", "meaning"),
    [
        ("REDIS_URL", "redis_url", "redis://other:1/2", "redis://other:1/2"),
        ("QUEUE_NAME", "queue_name", "q", "q"),
        ("PLAITA_WORKER_CONCURRENCY", "executors", "3", 3),
        ("PLAITA_WORKER_DRAIN_TIMEOUT", "drain_timeout", "1.5", 1.5),
        ("PLAITA_WORKER_MIN_FREE_DISK_GIB", "min_free_disk_gib", "2", 2.0),
        ("PLAITA_WORKER_DISK_GUARD_PATH", "disk_guard_path", "/", "/"),
        ("PLAITA_WORKER_LANGFUSE", "langfuse", "1", True),
        ("PLAITA_NODE_MODULES", "preload", "a.b, c", ("a.b", "c")),
        ("PLAITA_PRELOAD", "preload", "a,b", ("a", "b")),
        ("PLAITA_WORKER_DENY_REPOS", "deny_repos", "app, /srv/my work/,, x.git", ("app", "my work", "x.git")),
        ("PLAITA_WORKER_DENY_REPOS", "deny_repos", "", ()),
        (
            "PLAITA_REDIS_NODE_TARGETS",
            "redis_node_targets",
            "Q.example:6379, /run/v.sock",
            ("q.example:6379", "/run/v.sock"),
        ),
        ("PLAITA_REDIS_NODE_TARGETS", "redis_node_targets", "[::1]:07", ("[::1]:7",)),
        ("PLAITA_NO_REGISTRY", "registry", "1", False),
        ("PLAITA_NO_REGISTRY", "registry", "0", True),
        ("PLAITA_NO_SERVICES", "services", "1", False),
        ("PLAITA_LOG_LEVEL", "log_level", "debug", "DEBUG"),
        ("PLAITA_DEFAULT_NODE_TIMEOUT", "default_node_timeout_ms", "PT1M30S", 90_000),
        ("PLAITA_DEFAULT_NODE_TIMEOUT", "default_node_timeout_ms", "1500", 1500),
        ("PLAITA_DEFAULT_NODE_TIMEOUT", "default_node_timeout_ms", "off", None),
        ("PLAITA_DLQ_MAX_LEN", "dlq_max_len", "10", 10),
        ("PLAITA_KEY_PREFIX", "key_prefix", "{plaita}", "{plaita}"),
        ("PLAITA_EMBEDDED", "embedded", "", None),
    ],
)
def test_C1_names_of_the_environment(variable: str, field: str, value: str, meaning: Any) -> None:
    assert getattr(load({variable: value}), field) == meaning


def test_C1_own_name_stands_above_the_old_one() -> None:
    assert load({"PLAITA_QUEUE_NAME": "new", "QUEUE_NAME": "old"}).queue_name == "new"


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("executors", "0", ("--executors", "'0'", "1 to 1024")),
        ("executors", "two", ("--executors", "'two'")),
        ("executors", True, ("--executors",)),
        ("lease_ttl_seconds", "4", ("--lease-ttl-seconds", "'4'", "from 5")),
        ("claim_min_idle_ms", "-1", ("--claim-min-idle-ms",)),
        ("max_deliveries", "x", ("--max-deliveries", "'x'")),
        ("read_block_ms", "soon", ("--read-block-ms",)),
        ("drain_timeout", "soon", ("--drain-timeout", "'soon'", "seconds")),
        ("drain_timeout", "nan", ("--drain-timeout",)),
        ("kill_grace", "-1", ("--kill-grace",)),
        ("min_free_disk_gib", "inf", ("--min-free-disk-gib",)),
        ("metrics_port", "http", ("--metrics-port", "'http'")),
        ("metrics_port", "70000", ("--metrics-port", "65535")),
        ("log_level", "loud", ("--log-level", "DEBUG")),
        ("isolate", "none", ("--isolate", "carrier")),
        ("loop", "trio", ("--loop", "asyncio")),
        ("redis_url", "", ("--redis-url", "empty")),
        ("redis_url", "http://h", ("--redis-url", "scheme")),
        ("redis_url", "redis://h:99999/0", ("--redis-url", "port")),
        ("redis_url", "redis:///0", ("--redis-url", "host")),
        ("redis_url", "redis://h/zero", ("--redis-url", "database")),
        ("redis_url", "unix://relative", ("--redis-url", "absolute")),
        ("queue_name", "", ("--queue-name", "empty")),
        ("queue_name", "a b", ("--queue-name", "U+0020")),
        ("consumer_group", "a\nb", ("--consumer-group", "U+000A")),
        ("consumer_group", "", ("--consumer-group", "empty")),
        ("consumer_name", " ", ("--consumer-name",)),
        ("dlq_key", "", ("--dlq-key", "empty")),
        ("instance_id", "", ("--instance-id",)),
        ("instance_id", "a b", ("--instance-id", "U+0020")),
        ("instance_id", "x" * 201, ("--instance-id", "201")),
        ("instance_id", "\ud800", ("--instance-id", "surrogate")),
        ("key_prefix", "", ("--key-prefix",)),
        ("key_prefix", "{}", ("--key-prefix", "hash tag")),
        ("preload", ["a-b"], ("--preload", "a-b")),
        ("disk_guard_path", "/nowhere/at/all", ("--disk-guard-path", "No such file")),
        ("disk_guard_path", "", ("--disk-guard-path", "empty")),
        ("disk_guard_path", "a\0b", ("--disk-guard-path", "NUL")),
        ("executor_user", "no-such-user-here", ("--executor-user", "no such user")),
    ],
)
def test_C1_a_wrong_flag_stops(flag: str, value: Any, words: tuple[str, ...]) -> None:
    [fault] = faults(**{flag: value})
    for word in (*words, "right is"):
        assert word in fault


def test_C1_all_faults_together_each_with_its_source(toml: Any) -> None:
    file = toml('claim_min_idle_ms = "never"\nlease_ttl_second = 9\n')
    found = faults({"PLAITA_QUEUE_NAME": "", "PLAITA_LEASE_TTL_SECONDS": "1"}, file=file, executors="x")
    text = "\n".join(found)
    assert len(found) == 5
    assert f"file {file}, key 'claim_min_idle_ms': 'never'" in text
    assert f"file {file}, key 'lease_ttl_second': there is no such setting; did you mean 'lease_ttl_seconds'?" in text
    assert "environment PLAITA_QUEUE_NAME: ''" in text
    assert "environment PLAITA_LEASE_TTL_SECONDS: '1'" in text
    assert "flag --executors: 'x'" in text


@pytest.mark.parametrize(
    ("variable", "value", "field", "used"),
    [
        ("PLAITA_METRICS_PORT", "abc", "metrics_port", 0),
        ("PLAITA_METRICS_PORT", "-5", "metrics_port", 0),
        ("PLAITA_METRICS_PORT", "70000", "metrics_port", 0),
        ("PLAITA_WORKER_DRAIN_TIMEOUT", "soon", "drain_timeout", 30.0),
        ("PLAITA_WORKER_DRAIN_TIMEOUT", "nan", "drain_timeout", 30.0),
        ("PLAITA_WORKER_DRAIN_TIMEOUT", "-1", "drain_timeout", 0.0),
        ("PLAITA_WORKER_MIN_FREE_DISK_GIB", "much", "min_free_disk_gib", 0.0),
        ("PLAITA_DLQ_MAX_LEN", "x", "dlq_max_len", 1000),
        ("PLAITA_DLQ_MAX_LEN", "0", "dlq_max_len", 1),
        ("PLAITA_MAX_DELIVERIES", "0", "max_deliveries", 1),
        ("PLAITA_READ_BLOCK_MS", "5", "read_block_ms", 100),
        ("PLAITA_READ_BLOCK_MS", "60000", "read_block_ms", 1000),
        ("PLAITA_LOG_LEVEL", "loud", "log_level", "INFO"),
        ("PLAITA_QUIET", "yes", "quiet", False),
        ("PLAITA_WORKER_LANGFUSE", "true", "langfuse", False),
        ("PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS", "0", "execution_tombstone_ttl_seconds", 2_592_000),
        ("PLAITA_DISABLE_LEASE_WATCHDOG", "true", "disable_lease_watchdog", False),
    ],
)
def test_C1_optional_ones_warn_and_take_the_safe_value(variable: str, value: str, field: str, used: Any) -> None:
    config = load({variable: value})
    assert getattr(config, field) == used
    [warning] = config.warnings
    assert variable in warning
    assert repr(value) in warning


@pytest.mark.parametrize(
    "variable",
    [
        "PLAITA_LEASE_TTL_SECONDS",
        "PLAITA_CLAIM_MIN_IDLE_MS",
        "PLAITA_MAX_DELIVERIES",
        "PLAITA_EXECUTORS",
        "PLAITA_ISOLATE",
        "PLAITA_NO_REGISTRY",
        "PLAITA_KILL_GRACE",
    ],
)
def test_C1_resource_values_of_the_environment_stop(variable: str) -> None:
    [fault] = faults({variable: "nonsense"})
    assert fault.startswith(f"environment {variable}: 'nonsense'")


def test_C1_switches_that_weaken_the_promise_warn() -> None:
    config = load({"PLAITA_DISABLE_LEASE_WATCHDOG": "1", "PLAITA_DISABLE_HOLDER_LIVENESS": "1"})
    assert config.disable_lease_watchdog
    assert config.disable_holder_liveness
    assert len(config.warnings) == 2


def test_C1_persist_every_n_steps_means_one() -> None:
    [warning] = load({"PERSIST_EVERY_N_STEPS": "5"}).warnings
    assert "means 1" in warning


def test_C1_a_misspelt_variable_is_named() -> None:
    [warning] = load({"PLAITA_LEASE_TTL_SECOND": "9"}).warnings
    assert "did you mean PLAITA_LEASE_TTL_SECONDS?" in warning
    assert load({"PLAITA_HTTP_BLOCK_PRIVATE": "1", "PLAITA_TREE": "x"}).warnings == ()


# -- the file -----------------------------------------------------------------------------------


def test_C1_a_named_file_must_be_there(tmp_path: Path) -> None:
    [fault] = faults(file=tmp_path / "none.toml")
    assert "cannot be read" in fault
    [fault] = faults({"PLAITA_CONFIG": str(tmp_path)})
    assert "Is a directory" in fault


@pytest.mark.parametrize("text", ["a = ", "executors = 1\nexecutors = 2\n", "\x00", "= 1"])
def test_C1_no_toml_and_keys_that_stand_twice(toml: Any, text: str) -> None:
    [fault] = faults(file=toml(text))
    assert "it is no TOML" in fault


def test_C1_types_of_toml_are_taken_as_they_are(toml: Any) -> None:
    file = toml('registry = false\nquiet = true\npreload = ["a", "b.c"]\ndrain_timeout = 2\nexecutors = 3\n')
    config = load(file=file)
    assert (config.registry, config.quiet, config.preload) == (False, True, ("a", "b.c"))
    assert (config.drain_timeout, config.executors) == (2.0, 3)


@pytest.mark.parametrize("line", ["executors = true", "executors = [1]", "queue_name = 5", "lease_ttl_seconds = 5.5"])
def test_C1_wrong_types_of_toml_stop(toml: Any, line: str) -> None:
    [fault] = faults(file=toml(line))
    assert line.split(" ")[0] in fault


def test_C1_the_file_may_hold_settings_of_other_roles(toml: Any) -> None:
    file = toml('executors = 3\ntenant = "acme"\nqueue_name = "q"\n')
    assert load(file=file).executors == 3
    client = load_client_config(environ={}, file=file)
    assert (client.tenant, client.queue_name) == ("acme", "q")


# -- redis or embedded --------------------------------------------------------------------------


def test_C1_embedded_and_redis_exclude_each_other(tmp_path: Path) -> None:
    found = faults(redis_url="redis://h:1/0", embedded=str(tmp_path))
    assert any("exclude each other" in fault for fault in found)


def test_C1_the_closer_of_embedded_and_redis_wins(tmp_path: Path) -> None:
    config = load({"PLAITA_REDIS_URL": "redis://h:1/0"}, embedded=str(tmp_path))
    assert config.embedded == str(tmp_path)
    config = load({"PLAITA_EMBEDDED": str(tmp_path)}, redis_url="redis://h:1/0")
    assert config.embedded is None
    assert config.redis_url == "redis://h:1/0"


def test_C1_an_embedded_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    [fault] = faults(embedded=str(blocker / "data"))
    assert "--embedded" in fault
    assert "no folder" in fault


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_C1_an_embedded_folder_of_somebody_else() -> None:
    [fault] = faults(embedded="/proc/plaita")
    assert "cannot be written" in fault


# -- secrets ------------------------------------------------------------------------------------


def test_C1_a_secret_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"redis://:{MARKER}@h:6379/0\n")
    config = load({"PLAITA_REDIS_URL_FILE": str(secret)})
    assert config.redis_url == f"redis://:{MARKER}@h:6379/0"
    [fault] = faults({"PLAITA_REDIS_URL_FILE": str(tmp_path / "none")})
    assert "PLAITA_REDIS_URL_FILE" in fault
    found = faults({"PLAITA_REDIS_URL_FILE": str(secret), "PLAITA_REDIS_URL": "redis://h/0"})
    assert "give one of them" in found[0]


def test_C1_a_secret_file_named_in_the_file(tmp_path: Path, toml: Any) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://h:6379/3")
    assert load(file=toml(f'redis_url_file = "{secret}"')).redis_url == "redis://h:6379/3"


@pytest.mark.parametrize("bad", ["", "folder", "\0", "large", "binary"])
def test_C1_a_secret_file_that_is_none_is_a_fault_and_shows_nothing(tmp_path: Path, toml: Any, bad: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_text(f"redis://:{MARKER}@h/0" + "x" * 65536)
    (tmp_path / "binary").write_bytes(MARKER.encode() + b"\xff")
    name = "" if not bad else "a\0b" if bad == "\0" else str(tmp_path / bad)
    file = toml(f"redis_url_file = {json.dumps(name)}")
    for found in (faults({"PLAITA_REDIS_URL_FILE": name}), faults(file=file)):
        [fault] = found
        assert "name a readable file" in fault
        assert MARKER not in fault
    [fault] = faults(file=toml("redis_url_file = 5"))
    assert "5 names no file" in fault


def test_C1_a_credential_of_the_service_manager(tmp_path: Path, toml: Any) -> None:
    here = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert load(here).redis_url == "redis://localhost:6379/0"  # systemd leaves out what is not there
    (tmp_path / "redis_url").write_text("redis://other:1/0")  # a credential of somebody else's name
    assert "redis_url" not in load(here).sources
    (tmp_path / "plaita.redis_url").write_text(f"redis://:{MARKER}@cred:1/0\n")
    config = load(here)
    assert config.redis_url == f"redis://:{MARKER}@cred:1/0"
    assert config.sources["redis_url"] == "credential plaita.redis_url"
    file = toml('redis_url = "redis://file:1/0"')
    assert load(here, file=file).redis_url.endswith("@cred:1/0")
    assert load({**here, "REDIS_URL": "redis://alias:1/0"}).redis_url.endswith("@cred:1/0")
    assert load({**here, "PLAITA_REDIS_URL": "redis://env:1/0"}).redis_url == "redis://env:1/0"
    assert load(here, redis_url="redis://flag:1/0").redis_url == "redis://flag:1/0"
    assert load({**here, "PLAITA_EMBEDDED": str(tmp_path)}).embedded == str(tmp_path)
    (tmp_path / "plaita.queue_name").write_text("no-secret")  # settings that are no secrets do not come this way
    assert load(here).queue_name == "plaita:flow:queue"


@pytest.mark.parametrize(
    ("content", "wanted"), [("", "it is empty"), (f"http://:{MARKER}@h/0", "redis://"), (None, "cannot be read")]
)
def test_C1_a_credential_that_is_none(tmp_path: Path, content: str | None, wanted: str) -> None:
    path = tmp_path / "plaita.redis_url"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    [fault] = faults({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert "credential plaita.redis_url" in fault
    assert wanted in fault
    assert MARKER not in fault


# -- this host ----------------------------------------------------------------------------------


def test_C1_a_socket_path_that_is_too_long(tmp_path: Path) -> None:
    [fault] = faults(socket=str(tmp_path / ("x" * 120)))
    assert "107" in fault
    exact = "/tmp/" + "x" * (107 - 5)
    assert load(socket=exact).socket == exact


def test_C1_a_socket_path_where_something_else_stands(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    [fault] = faults(socket=str(other))
    assert "something else than a socket" in fault
    assert other.read_text() == "mine"
    [fault] = faults(socket=str(other / "s.sock"))
    assert "Not a directory" in fault or "no folder" in fault


def test_C1_default_socket_follows_systemd() -> None:
    assert load({"RUNTIME_DIRECTORY": "/tmp:/var"}).socket == "/tmp/supervisor.sock"
    assert load({"RUNTIME_DIRECTORY": "/tmp"}, socket="/tmp/other.sock").socket == "/tmp/other.sock"


def test_C1_an_unknown_role_is_refused() -> None:
    with pytest.raises(InputError, match="role"):
        load_runtime_config("captain", environ={})


def test_C1_a_flag_that_is_no_setting_is_a_bug_of_the_caller() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        load(nonsense="1")
