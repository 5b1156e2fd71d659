"""Retry, death, respawn, backoff, lease conflict and refusal verdicts, by table."""

from __future__ import annotations

from itertools import product

import pytest

from plaita.policy import begin_refusal, retry
from plaita.policy.backoff import backoff_s
from plaita.policy.begin_refusal import Settle
from plaita.policy.lease_conflict import Verdict, judge
from plaita.policy.respawn import (
    FREE_DEATHS,
    MAX_DELAY_MS,
    TEMPLATE_WINDOW_MS,
    WINDOW_MS,
    respawn_delay_ms,
    template_delay_ms,
)
from plaita.policy.retry import NODE_RETRY_TOTAL_MAX, Next


@pytest.mark.parametrize(
    ("failures", "total", "following", "delay", "dead_letter"),
    [
        (1, 1, Next.LATER, 1_000, False),
        (2, 2, Next.LATER, 2_000, False),
        (3, 3, Next.LATER, 4_000, False),
        (4, 4, Next.LATER, 8_000, False),
        (5, 5, Next.END, 0, True),
        (1, NODE_RETRY_TOTAL_MAX, Next.LATER, 1_000, False),
        (1, NODE_RETRY_TOTAL_MAX + 1, Next.END, 0, True),
    ],
)
def test_S10_S11_S12_after_failure(failures: int, total: int, following: Next, delay: int, dead_letter: bool) -> None:
    found = retry.after_failure(retryable=True, node_failures=failures, total_retries=total, max_deliveries=5)
    assert (found.next, found.delay_ms, found.dead_letter) == (following, delay, dead_letter)


def test_S9_what_is_not_retryable_ends_at_once_and_is_no_dead_letter() -> None:
    found = retry.after_failure(retryable=False, node_failures=1, total_retries=1, max_deliveries=5)
    assert (found.next, found.dead_letter) == (Next.END, False)


def test_S10_the_wait_never_exceeds_30_s() -> None:
    found = retry.after_failure(retryable=True, node_failures=10_000, total_retries=1, max_deliveries=10**6)
    assert found.delay_ms == 30_000


@pytest.mark.parametrize(
    ("lost", "following", "delay"),
    [
        (1, Next.AGAIN, 0),
        (2, Next.LATER, 1_000),
        (3, Next.LATER, 2_000),
        (4, Next.LATER, 4_000),
        (5, Next.END, 0),
        (6, Next.END, 0),
    ],
)
def test_S14_after_death(lost: int, following: Next, delay: int) -> None:
    found = retry.after_death(lost=lost, max_deliveries=5)
    assert (found.next, found.delay_ms) == (following, delay)
    assert found.dead_letter == (following is Next.END)


def test_Q3_max_deliveries_one_still_allows_one_try() -> None:
    assert retry.after_death(lost=1, max_deliveries=1).next is Next.END
    assert retry.after_failure(retryable=True, node_failures=1, total_retries=1, max_deliveries=1).next is Next.END


@pytest.mark.parametrize("attempt", [0, 1, 46, 47, 1023, 1024, 10**6, -1])
@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_backoff_is_always_between_nothing_and_its_cap(attempt: int, jitter: float) -> None:
    assert 0 < backoff_s(attempt, base=0.1, cap=5.0, jitter=jitter) <= 5.0


def test_backoff_grows_until_the_cap() -> None:
    waits = [backoff_s(n, base=0.1, cap=5.0, jitter=0.5) for n in range(20)]
    assert waits == sorted(waits)
    assert waits[-1] == backoff_s(1000, base=0.1, cap=5.0, jitter=0.5)


def test_respawn_at_once_until_deaths_come_too_fast() -> None:
    now = 1_000_000
    assert respawn_delay_ms([now - i for i in range(FREE_DEATHS)], now, spawn_failures=0) == 0
    assert respawn_delay_ms([now - i for i in range(FREE_DEATHS + 1)], now, spawn_failures=0) > 0
    assert respawn_delay_ms([now - WINDOW_MS - 1] * 1000, now, spawn_failures=0) == 0
    assert respawn_delay_ms([now] * 1000, now, spawn_failures=0) == MAX_DELAY_MS


def test_a_template_that_ends_over_and_over_is_started_less_and_less_often() -> None:
    now = 1_000_000
    waits = [template_delay_ms([now - 1] * ends + [now], now) for ends in range(10)]
    assert waits == [0, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000]
    assert template_delay_ms([now - TEMPLATE_WINDOW_MS] * 9 + [now], now) == 0


def test_executors_that_never_say_hello_slow_the_respawn_from_the_first_on() -> None:
    waits = [respawn_delay_ms([], 0, spawn_failures=n) for n in range(30)]
    assert waits[0] == 0
    assert 0 < waits[1] < waits[2]
    assert waits == sorted(waits)
    assert waits[-1] == MAX_DELAY_MS


@pytest.mark.parametrize(
    ("resume", "registry", "readable", "own", "incarnation", "status"),
    list(
        product(
            (None, "event", "timeout", "cancel", "continue", "retry"),
            (True, False),
            (True, False),
            (True, False),
            (True, False),
            ("starting", "running", "draining", "stopping", "stopped", None),
        )
    ),
)
def test_L5_a_carrier_is_acked_only_as_the_duplicate_of_a_live_holders_other_carrier(
    resume: str | None, registry: bool, readable: bool, own: bool, incarnation: bool, status: str | None
) -> None:
    verdict = judge(
        resume_type=resume,
        registry=registry,
        lease_readable=readable,
        is_holders_carrier=own,
        holder_incarnation_registered=incarnation,
        holder_status=status,
    )
    duplicate = (
        resume in (None, "continue", "retry")
        and registry
        and readable
        and not own
        and incarnation
        and status == "running"
    )
    assert (verdict is Verdict.ACK_DUPLICATE) == duplicate


def test_L5_with_holder_liveness_disabled_a_duplicate_is_acked_unasked_but_nothing_else() -> None:
    for resume, registry, readable, own in product(
        (None, "event", "timeout", "cancel", "continue", "retry"), (True, False), (True, False), (True, False)
    ):
        verdict = judge(
            resume_type=resume,
            registry=registry,
            lease_readable=readable,
            is_holders_carrier=own,
            holder_incarnation_registered=False,
            holder_status=None,
            ask_liveness=False,
        )
        duplicate = resume in (None, "continue", "retry") and readable and not own
        assert (verdict is Verdict.ACK_DUPLICATE) == duplicate


@pytest.mark.parametrize(
    ("reason", "settle", "while_status"),
    [
        ("terminal", Settle.ACK, "cancelled"),  # the detail
        ("suspended", Settle.ACK, "suspended"),
        ("stale_wait", Settle.POISON, "suspended"),
        ("no_checkpoint", Settle.POISON, None),
        ("g1_wakeups_exhausted", Settle.ACK, "error"),
        ("deterministic_failure_exhausted", Settle.ACK, "error"),
        ("tombstoned", Settle.ACK, None),
        ("too_old", Settle.ACK, None),
        ("no_row", Settle.POISON, None),
        ("flow_conflict", Settle.POISON, None),
        ("tenant_disabled", Settle.TENANT, None),
        ("tenant_epoch", Settle.TENANT, None),
        ("quota", Settle.TENANT, None),
        ("wrong_type", Settle.DEAD_LETTER, None),
        ("no_flow", Settle.DEAD_LETTER, None),
        ("no_version", Settle.DEAD_LETTER, None),
        ("a reason of a later build", Settle.LEAVE_PENDING, None),
    ],
)
def test_refusals(reason: str, settle: Settle, while_status: str | None) -> None:
    ruling = begin_refusal.rule(reason, "cancelled")
    assert (ruling.settle, ruling.while_status) == (settle, while_status)
