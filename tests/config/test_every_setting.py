"""Every setting with every kind of bad value, from each place it can stand in: a fault or a warning that names the
place, and what would be right; never a surprise, and never taken silently unless it is right for that setting.

The outcome is the documented one: the page is printed from the same marks (*lenient*, *pulled in*, yes/no).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plaita.errors import ConfigError
from plaita.runtime_config import SupervisorConfig, effective, generations, load_runtime_config
from plaita.runtime_config.settings import Setting, settings_of

SETTINGS = settings_of(SupervisorConfig)
BAD = (
    "", " ", "a b", "a\nb", "\x00", "none", "yes", "-1", "0", "1.5", "nan", "inf", "1e400", "9" * 30, "x" * 5000,
    "a/\udcff",
)  # fmt: skip
# What is right for a setting, though it is nonsense for most.
WORDS = {"none", "yes", "-1", "0", "1.5", "nan", "inf", "1e400", "9" * 30}
PATHS = WORDS | {" ", "a b", "a\nb"}
RIGHT: dict[str, set[str]] = {
    **dict.fromkeys(("queue_name", "consumer_group", "dlq_key", "key_prefix", "consumer_name", "instance_id"), WORDS),
    "deployment_epoch": WORDS,
    "metrics_host": WORDS,
    "embedded": PATHS | {""},
    "socket": PATHS,
    "disk_guard_path": set(),
    "preload": {"", " ", "a b", "a\nb", "none", "yes", "nan", "inf", "x" * 5000},
    "deny_repos": WORDS | {"", " ", "a b", "x" * 5000},
    "redis_node_targets": {"", " "},
    "callback_secret": {"", "9" * 30},
    "callback_base_url": {""},
    "executor_user": {""},
    "default_node_timeout_ms": {"", " ", "0"},
    "task_max_age_seconds": {"0"},
    "execution_state_ttl_days": {"0", "1.5"},
    "drain_timeout": {"0", "1.5"},
    "kill_grace": {"0", "1.5"},
    "template_deadline": {"1.5"},
    "min_free_disk_gib": {"0", "1.5", "9" * 30},
    "min_free_inodes_percent": {"0", "1.5"},
    "disk_guard_poll_seconds": {"1.5"},
    "metrics_port": {"0"},
    "max_steps_per_executor": {"0"},
    "max_executor_rss_mib": {"0"},
}
SWITCH = {"", "0"}
EMPTY_IN_THE_ENVIRONMENT_ONLY = {
    "embedded",
    "executor_user",
    "callback_secret",
    "callback_base_url",
}  # where `NAME=` in a unit file takes a setting back


def right(name: str, setting: Setting, place: str) -> set[str]:
    if setting.switch:
        return SWITCH
    found = RIGHT.get(name, set())
    return found - {""} if name in EMPTY_IN_THE_ENVIRONMENT_ONLY and place != "environment" else found


def judged(setting: Setting, name: str, value: str, place: str, folder: Path) -> tuple[str, list[str]]:
    """(fault, warning or taken; the lines that name the place)."""
    environ, flags, file, source = {}, {}, None, f"environment {setting.environment[0]}"
    if place == "flag":
        flags, source = {name: value}, f"flag {setting.flag}"
    elif place == "file":
        file = folder / "plaita.toml"
        file.write_text(f"{name} = {json.dumps(value)}\n", encoding="utf-8")
        source = f"file {file}, key {name!r}"
    else:
        environ = {setting.environment[0]: value}
    try:
        config = load_runtime_config("worker", flags=flags, environ=environ, file=file)
    except ConfigError as error:
        return "fault", [line for line in error.faults if line.startswith(source)]
    json.dumps(effective(config), ensure_ascii=False).encode(), generations(config)  # what is taken can be shown
    lines = [line for line in config.warnings if line.startswith(source)]
    return ("warning" if lines else "taken"), lines


@pytest.mark.parametrize("place", ["environment", "flag", "file"])
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_C1_each_bad_value_has_the_documented_outcome(name: str, place: str, tmp_path: Path) -> None:
    setting = SETTINGS[name]
    if place == "flag" and (setting.flag is None or setting.switch):
        pytest.skip("it has no flag with a value")
    for value in BAD:
        if place == "file" and "\udcff" in value:
            continue  # no TOML text can hold it
        outcome, lines = judged(setting, name, value, place, tmp_path)
        if value in right(name, setting, place):
            assert outcome != "fault", (value, lines)
            continue
        assert outcome != "taken", f"{name} from the {place}: {value[:40]!r} was taken silently"
        [line] = lines
        assert setting.right in line, line
        if outcome == "warning":
            pulled = setting.low is not None or setting.high is not None
            assert setting.optional or pulled, f"{name} is not documented as lenient or pulled in: {line}"
        if setting.optional and place != "flag":
            assert outcome == "warning", line


def test_C1_every_setting_is_judged_here_with_its_own_right_values() -> None:
    assert set(RIGHT) <= set(SETTINGS)
    assert all(setting.environment for setting in SETTINGS.values())
