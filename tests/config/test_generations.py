"""C2: the three generations, and secrets that are shown nowhere."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from plaita.errors import ConfigError
from plaita.runtime_config import (
    SupervisorConfig,
    config_family,
    effective,
    every_setting,
    generations,
    load_client_config,
    load_runtime_config,
    mask_url,
    settings_of,
)

MARKER = "S3cr3t-marker"


def load(**flags: Any) -> SupervisorConfig:
    return load_runtime_config("worker", flags=flags, environ={})


def changed(**flags: Any) -> set[str]:
    before, after = dataclasses.asdict(generations(load())), dataclasses.asdict(generations(load(**flags)))
    return {name for name in before if before[name] != after[name]}


def test_C2_prefixes_and_stability() -> None:
    ids = generations(load())
    assert ids.config_family.startswith("cf1-")
    assert ids.config_generation.startswith("cfg1-")
    assert ids.budget_generation.startswith("bg1-")
    assert ids == generations(load())


@pytest.mark.parametrize("name", ["queue_name", "consumer_group", "dlq_key", "key_prefix"])
def test_C2_family_is_what_makes_carriers_understood(name: str) -> None:
    assert changed(**{name: "other"}) == {"config_family", "config_generation"}


@pytest.mark.parametrize("flags", [{"max_deliveries": "9"}, {"lease_ttl_seconds": "9"}])
def test_C2_budget_is_what_a_carrier_may_cost(flags: dict[str, str]) -> None:
    assert changed(**flags) == {"budget_generation", "config_generation"}


@pytest.mark.parametrize("flags", [{"executors": "9"}, {"isolate": "step"}, {"drain_timeout": "9"}])
def test_C2_all_other_meaning_is_in_the_generation(flags: dict[str, str]) -> None:
    assert changed(**flags) == {"config_generation"}


@pytest.mark.parametrize(
    "flags",
    [
        {"log_level": "DEBUG"},
        {"metrics_port": "9100"},
        {"instance_id": "x"},
        {"consumer_name": "x"},
        {"quiet": True},
        {"socket": "/tmp/x.sock"},
    ],
)
def test_C2_appearance_and_names_of_hosts_change_nothing(flags: dict[str, Any]) -> None:
    assert changed(**flags) == set()


def test_C2_another_password_is_no_other_generation() -> None:
    one, two = load(redis_url="redis://u:a@h/0"), load(redis_url="redis://u:b@h/0")
    assert generations(one) == generations(two)


def test_C2_a_producer_computes_the_same_family() -> None:
    client = load_client_config(flags={"queue_name": "q"}, environ={})
    assert config_family(client) == generations(load(queue_name="q")).config_family


# -- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        (f"redis://user:{MARKER}@h:1/0", "redis://user:***@h:1/0"),
        (f"redis://:{MARKER}@h:1/0", "redis://:***@h:1/0"),
        (f"redis://{MARKER}@h:1/0", "redis://***@h:1/0"),
        (f"redis://:{MARKER}@x@h:1/0", "redis://:***@h:1/0"),
        (f"unix:///run/r.sock?password={MARKER}&db=1", "unix:///run/r.sock?password=***&db=1"),
        (f"redis://h/0?PASSWORD={MARKER}&x_token={MARKER}&db=1", "redis://h/0?PASSWORD=***&x_token=***&db=1"),
        # a password with characters that should have been escaped
        (f"redis://u:{MARKER}#x@h:1/0", "redis://u:***@h:1/0"),
        (f"redis://u:{MARKER}/x@h:1/0", "redis://u:***@h:1/0"),
        (f"redis://u:{MARKER}?x@h:1/0", "redis://u:***@h:1/0"),
        (f"redis://{MARKER}/x@h:1/0", "redis://***@h:1/0"),
        (f"redis://u:{MARKER}@[::1", "redis://u:***@[::1"),
        (f"redis:/u:{MARKER}@h", "(masked)"),
    ],
)
def test_mask_url(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_C1_no_password_in_anything_that_is_shown() -> None:
    config = load(redis_url=f"redis://user:{MARKER}@h:1/0?password={MARKER}")
    for text in (repr(config), str(config), json.dumps(effective(config)), f"{config}"):
        assert MARKER not in text
    assert effective(config)["redis_url"] == "redis://user:***@h:1/0?password=***"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{MARKER}@h:99999/0",
        f"http://:{MARKER}@h",
        f"redis://:{MARKER}@h/zero",
        f"redis://:{MARKER} @h",
        f"//{MARKER}",
        MARKER,
        f"redis://[{MARKER}",
    ],
)
def test_C1_no_password_in_a_fault(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(redis_url=url)
    assert MARKER not in "".join(caught.value.faults)


# -- the tables ---------------------------------------------------------------------------------


def test_every_setting_is_named_once() -> None:
    variables = [variable for setting in every_setting().values() for variable in setting.environment]
    assert len(variables) == len(set(variables))
    flags = [setting.flag for setting in every_setting().values() if setting.flag]
    assert len(flags) == len(set(flags))


def test_every_flag_has_a_variable_of_plaita() -> None:
    for name, setting in settings_of(SupervisorConfig).items():
        assert setting.environment[0].startswith("PLAITA_"), name
        assert setting.about, name
        assert setting.right, name


def test_C1_no_secret_is_among_the_values_that_are_shown_nor_in_an_id() -> None:
    environ = {"PLAITA_CALLBACK_SECRET": "S3cr3t-marker of one", "PLAITA_REDIS_URL": "redis://:S3cr3t-marker@h/0"}
    config = load_runtime_config("worker", environ=environ)
    shown = effective(config)
    assert "S3cr3t-marker" not in str(shown) + repr(config) + str(config)
    assert (shown["callback_secret"], shown["redis_url"]) == ("***", "redis://:***@h/0")
    other = load_runtime_config("worker", environ={**environ, "PLAITA_CALLBACK_SECRET": "S3cr3t-marker of another"})
    assert generations(other) == generations(config)
    assert effective(load_runtime_config("worker", environ={}))["callback_secret"] is None
