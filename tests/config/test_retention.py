"""Ledger D2: what a command that deletes reads, and what it does with nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from plaita.errors import ConfigError
from plaita.runtime_config import RetentionConfig, load_retention_config


def load(tmp_path: Path, **environ: str) -> RetentionConfig:
    (tmp_path / "empty.toml").write_text("")
    return load_retention_config(environ={"PLAITA_CONFIG": str(tmp_path / "empty.toml"), **environ})


def test_the_defaults_are_thirty_days(tmp_path: Path):
    found = load(tmp_path)
    assert found.execution_tombstone_ttl_seconds == found.task_max_age_seconds == 30 * 86_400
    assert found.execution_state_ttl_days == 30.0


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1.5", ""])
def test_D2_a_ttl_that_is_none_warns_and_is_the_default(tmp_path: Path, value: str):
    found = load(tmp_path, PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS=value)
    assert found.execution_tombstone_ttl_seconds == 30 * 86_400
    assert any("PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS" in warning for warning in found.warnings)


def test_what_is_right_is_taken(tmp_path: Path):
    found = load(
        tmp_path,
        PLAITA_EXECUTION_TOMBSTONE_TTL_SECONDS="60",
        PLAITA_EXECUTION_STATE_TTL_DAYS="0",
        PLAITA_TASK_MAX_AGE_SECONDS="120",
        PLAITA_TENANT="t",
    )
    assert (found.execution_tombstone_ttl_seconds, found.execution_state_ttl_days) == (60, 0)
    assert (found.task_max_age_seconds, found.tenant, found.warnings) == (120, "t", ())


def test_other_nonsense_stops(tmp_path: Path):
    with pytest.raises(ConfigError):
        load(tmp_path, PLAITA_EXECUTION_STATE_TTL_DAYS="-1")
