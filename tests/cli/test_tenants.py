"""``plaita tenant ...`` on a real server: what is written, what is told, which exit code (ledger T2 to T4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from plaita.store.keys import Keys

Run = Callable[..., Any]
Do = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("connected")

FLOW = {"flow_id": "f", "nodes": [{"type": "start", "id": "s", "next": "e"}, {"type": "end", "id": "e", "output": 1}]}


@pytest.fixture
def furnished(connected: str, plaita: Run, flow_file: Callable[..., str]) -> None:
    """Tenants a and b, each with the flow f and a pending execution x."""
    file = flow_file(FLOW)
    for tenant in ("a", "b"):
        assert plaita("flow", "put", file, "--tenant", tenant).code == 0
        assert plaita("start", "f", "--id", "x", "--tenant", tenant).code == 0


def said(plaita: Run, *words: str, code: int = 0) -> dict[str, Any]:
    done = plaita("tenant", *words, "--json")
    assert done.code == code, done.err
    document: dict[str, Any] = json.loads(done.out)
    return document


def test_T2_disable_and_enable_write_the_status_with_the_epoch(
    plaita: Run, redis_do: Do, keys: Keys, furnished: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_DEPLOYMENT_EPOCH", "41")
    answer = said(plaita, "disable", "a")
    assert answer == {"tenant_id": "a", "status": "disabled", "was": None, "epoch": "41"}
    assert redis_do("HGET", keys.tenant_status, "a") == b"disabled"
    assert redis_do("GET", keys.tenant_epoch) == b"41"
    refused = plaita("start", "f", "--tenant", "a")
    assert refused.code == 1
    assert "disabled" in refused.err
    assert plaita("start", "f", "--tenant", "b").code == 0
    monkeypatch.setenv("PLAITA_DEPLOYMENT_EPOCH", "42")
    answer = said(plaita, "enable", "a")
    assert (answer["status"], answer["was"], answer["epoch"]) == ("active", "disabled", "42")
    assert redis_do("GET", keys.tenant_epoch) == b"42"
    assert plaita("start", "f", "--tenant", "a").code == 0


def test_T2_enable_gives_a_carrier_to_what_lost_its_own(plaita: Run, redis_do: Do, keys: Keys, furnished: None) -> None:
    said(plaita, "disable", "a")
    redis_do("DEL", keys.queue)  # dropped at dispatch, say; b's is lost too, and is not a's business
    assert said(plaita, "enable", "a")["requeued"] == 1
    assert redis_do("XLEN", keys.wake) == 1
    assert said(plaita, "enable", "a")["requeued"] == 0


def test_T2_status_says_what_keeps_a_tenant_from_running(
    plaita: Run, furnished: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = said(plaita, "status", "a")
    assert (answer["status"], answer["why"], answer["pending"], answer["quota"]) == ("active", None, 1, None)
    monkeypatch.setenv("PLAITA_DEPLOYMENT_EPOCH", "7")
    answer = said(plaita, "status", "a")
    assert (answer["why"], answer["epoch"], answer["deployment_epoch"]) == ("epoch missing", None, "7")
    assert said(plaita, "status", "default")["why"] is None
    said(plaita, "disable", "b")
    assert said(plaita, "status", "a")["why"] is None
    assert said(plaita, "status", "b")["status"] == "disabled"
    monkeypatch.setenv("PLAITA_DEPLOYMENT_EPOCH", "8")
    assert said(plaita, "status", "a")["why"] == "epoch older"
    monkeypatch.setenv("PLAITA_DEPLOYMENT_EPOCH", "6")
    assert said(plaita, "status", "a")["why"] == "epoch newer"
    assert "epoch newer" in plaita("tenant", "status", "a").out


def test_a_tenant_that_nobody_knows_is_active_and_has_nothing(plaita: Run) -> None:
    answer = said(plaita, "status", "nobody")
    assert (answer["status"], answer["pending"], answer["running"]) == ("active", 0, 0)


def test_T3_a_quota_is_set_shown_and_taken_away(plaita: Run, redis_do: Do, keys: Keys, furnished: None) -> None:
    assert said(plaita, "quota", "a", "1") == {"tenant_id": "a", "quota": 1, "was": None}
    assert redis_do("HGET", keys.tenant_quota, "a") == b"1"
    assert plaita("start", "f", "--tenant", "a").code == 0
    answer = said(plaita, "status", "a")
    assert (answer["quota"], answer["parked"]) == (1, 1)
    assert said(plaita, "quota", "a", "0") == {"tenant_id": "a", "quota": None, "was": 1}
    for wrong in ("x", "1.5", "9" * 30):
        assert plaita("tenant", "quota", "a", wrong).code == 2
    assert plaita("tenant", "quota", "a", "--", "-1").code == 2
    assert said(plaita, "status", "a")["quota"] is None


def test_list_names_who_has_something_and_with_all_everybody(plaita: Run, furnished: None) -> None:
    assert [one["tenant_id"] for one in said(plaita, "list")["tenants"]] == ["default"]
    said(plaita, "quota", "b", "3")
    said(plaita, "disable", "zz")
    found = said(plaita, "list")["tenants"]
    assert [(one["tenant_id"], one["status"], one["quota"]) for one in found] == [
        ("b", "active", 3),
        ("default", "active", None),
        ("zz", "disabled", None),
    ]
    everybody = said(plaita, "list", "--all")["tenants"]
    assert [one["tenant_id"] for one in everybody] == ["a", "b", "default", "zz"]
    shown = plaita("tenant", "list", "--all").out
    assert all(name in shown for name in ("tenant", "quota", "zz"))


def test_T4_purge_asks_for_yes_and_for_a_disabled_tenant(plaita: Run, furnished: None) -> None:
    assert plaita("tenant", "purge", "a").code == 2
    refused = plaita("tenant", "purge", "a", "--yes")
    assert refused.code == 1
    assert "disable it first" in refused.err
    assert plaita("tenant", "purge", "default", "--yes", "--force").code == 1
    assert plaita("show", "x", "--tenant", "a").code == 0
    said(plaita, "disable", "a")
    answer = said(plaita, "purge", "a", "--yes")
    assert (answer["executions"], answer["status"]) == (1, "disabled")
    assert plaita("show", "x", "--tenant", "a").code == 1
    assert plaita("show", "x", "--tenant", "b").code == 0
    assert plaita("flow", "show", "f", "--tenant", "a").code == 1
    said(plaita, "enable", "a")
    assert plaita("start", "f", "--id", "x", "--tenant", "a").code == 1


@pytest.mark.parametrize("verb", ["status", "enable", "disable", "quota", "purge"])
@pytest.mark.parametrize("tenant", ["a:b", "a/b", "", "execution", "x" * 201, "a b"])
def test_what_is_no_tenant_is_bad_input_of_every_verb(
    plaita: Run, redis_do: Do, keys: Keys, verb: str, tenant: str
) -> None:
    more = {"quota": ["3"], "purge": ["--yes", "--force"]}.get(verb, [])
    done = plaita("tenant", verb, tenant, *more)
    assert done.code == 2
    assert "tenant" in done.err
    assert redis_do("EXISTS", keys.tenant_status, keys.tenant_quota) == 0


@pytest.mark.parametrize("tenant", ["a-b", "租户", "x" * 200, "é"])
def test_awkward_tenants_go_through_every_verb(plaita: Run, tenant: str) -> None:
    assert said(plaita, "disable", tenant)["tenant_id"] == tenant
    assert said(plaita, "quota", tenant, "2")["quota"] == 2
    assert said(plaita, "status", tenant)["status"] == "disabled"
    assert said(plaita, "purge", tenant, "--yes")["tenant_id"] == tenant
    assert said(plaita, "enable", tenant)["was"] == "disabled"
    assert tenant in {one["tenant_id"] for one in said(plaita, "list")["tenants"]}


def test_an_empty_epoch_is_refused_before_anything_is_written(
    plaita: Run, redis_do: Do, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_DEPLOYMENT_EPOCH", "")
    done = plaita("tenant", "disable", "a")
    assert done.code == 2
    assert "PLAITA_DEPLOYMENT_EPOCH" in done.err
    assert redis_do("EXISTS", keys.tenant_status) == 0


def test_without_a_server_it_is_unreachable(plaita: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (
        ["list"],
        ["status", "a"],
        ["disable", "a"],
        ["enable", "a"],
        ["quota", "a", "1"],
        ["purge", "a", "--yes"],
    ):
        assert plaita("tenant", *words, "--redis-url", "redis://127.0.0.1:1/0").code == 3
