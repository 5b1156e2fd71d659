"""Who is alive, and what differs between hosts (ledger C2, G1)."""

from __future__ import annotations

from typing import Any

import pytest

from plaita.policy import cluster
from plaita.policy.cluster import Standing
from plaita.supervisor.registrar import HEARTBEAT_S


def test_the_heartbeat_is_the_registrars() -> None:
    assert cluster.HEARTBEAT_MS == HEARTBEAT_S * 1000


@pytest.mark.parametrize(
    ("record", "there", "age_ms", "found"),
    [
        ({"status": "running"}, True, 0, Standing.ALIVE),
        ({"status": "running"}, True, 20_000, Standing.ALIVE),
        ({"status": "running"}, True, 20_001, Standing.STALE),
        ({"status": "draining"}, True, 20_001, Standing.STALE),
        ({"status": "stopped"}, True, 4_000, Standing.STOPPED),
        ({}, True, 0, Standing.ALIVE),
        (None, True, 0, Standing.UNREADABLE),
        (None, False, 0, Standing.DEAD),
        ({"status": "running"}, False, 0, Standing.DEAD),
    ],
)
def test_G1_standing(record: dict[str, Any] | None, there: bool, age_ms: int, found: Standing) -> None:
    assert cluster.standing(record, there=there, age_ms=age_ms) is found


def host(
    family: Any = "cf1-a", generation: Any = "cfg1-a", budget: Any = "bg1-a", version: Any = "1"
) -> dict[str, Any]:
    ids = {"config_family": family, "config_generation": generation, "budget_generation": budget}
    return {"generations": ids, "plaita_version": version}


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ({}, []),
        ({"a": host()}, []),
        ({"a": host(), "b": host()}, []),
        ({"a": host(), "b": host(family="cf1-b")}, ["config_family"]),
        ({"a": host(), "b": host(budget="bg1-b", version="2")}, ["budget_generation", "plaita_version"]),
        ({"a": host(), "b": host(budget=None, generation=7)}, []),  # says nothing: nothing to compare
        ({"a": host(), "b": {"generations": "?"}}, []),
        ({"a": host(), "b": {}}, []),
    ],
)
def test_C2_mixes(hosts: dict[str, Any], names: list[str]) -> None:
    found = cluster.mixes(hosts)
    assert [one.name for one in found] == names
    assert all(one.advice for one in found)


def test_C2_settings_that_differ_name_who_has_which() -> None:
    found = cluster.differing(
        {
            "a": {"executors": 2, "isolate": "tenant", "socket": "/a", "preload": ["x"]},
            "b": {"executors": 4, "isolate": "tenant", "socket": "/b", "preload": ["x"]},
            "c": {"executors": 2, "isolate": "tenant", "socket": "/c", "new_in_its_version": 1},
        },
        {"socket"},
    )
    assert [(one.name, one.values) for one in found] == [("executors", [(2, ["a", "c"]), (4, ["b"])])]
