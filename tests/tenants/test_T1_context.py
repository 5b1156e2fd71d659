"""T1: a tenant is set or handed over, never guessed; a write without one is refused and named."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from plaita import tenancy
from plaita.errors import InputError, TenantContextMissingError

T = TypeVar("T")
SITE = "test.write"


def fresh(function: Callable[[], T]) -> T:
    """In a context where nothing was ever set, as at the start of a program."""
    return contextvars.Context().run(function)


def seen() -> tuple[str, str]:
    return tenancy.current_tenant(), tenancy.tenant_source()


def in_thread(function: Callable[[], T]) -> T:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_T1_never_set_is_refused_by_the_name_of_the_site_and_reads_default() -> None:
    def look() -> None:
        assert seen() == ("default", "default")
        with pytest.raises(TenantContextMissingError, match=r"credentials\.save") as caught:
            tenancy.require_tenant("credentials.save")
        assert caught.value.site == "credentials.save"
        assert pickle.loads(pickle.dumps(caught.value)).site == "credentials.save"

    fresh(look)


def test_T1_the_default_tenant_set_on_purpose_may_write() -> None:
    def look() -> str:
        tenancy.set_default_tenant_once()
        assert seen() == ("default", "explicit")
        return tenancy.require_tenant(SITE)

    assert fresh(look) == "default"


def test_T1_an_entry_point_sets_the_default_once_and_leaves_what_is_set() -> None:
    def look() -> tuple[str, str]:
        tenancy.set_current_tenant("acme")
        tenancy.set_default_tenant_once()
        return seen()

    assert fresh(look) == ("acme", "explicit")


def test_T1_a_context_ends() -> None:
    def look() -> None:
        with tenancy.tenant_context("a"):
            with tenancy.tenant_context("b", "derived"):
                assert seen() == ("b", "derived")
            assert seen() == ("a", "explicit")
        assert seen() == ("default", "default")

    fresh(look)


@pytest.mark.parametrize("tenant", ["", "a:b", "a/b", "a b", "a\nb", "x" * 201, None, 7, "\ud800"])
def test_T1_what_is_no_tenant_id_is_refused_and_sets_nothing(tenant: Any) -> None:
    def look() -> tuple[str, str]:
        with pytest.raises(InputError, match="tenant"):
            tenancy.set_current_tenant(tenant)
        return seen()

    assert fresh(look) == ("default", "default")


@pytest.mark.parametrize("tenant", ["a", "a-b", "租户", "x" * 200])
def test_T1_awkward_tenants_are_tenants(tenant: str) -> None:
    def look() -> str:
        tenancy.set_current_tenant(tenant)
        return tenancy.current_tenant()

    assert fresh(look) == tenant


def test_T1_no_other_source_is_taken() -> None:
    with pytest.raises(InputError, match="source"):
        tenancy.set_current_tenant("a", "guessed")  # type: ignore[arg-type]


# -- threads ----------------------------------------------------------------------------------------


def test_T1_a_thread_that_nothing_was_handed_to_has_no_tenant() -> None:
    def look() -> tuple[str, str]:
        tenancy.set_current_tenant("acme")
        return in_thread(seen)

    assert fresh(look) == ("default", "default")


def test_T1_a_thread_gets_it_as_derived_and_gives_it_back() -> None:
    def look() -> None:
        tenancy.set_current_tenant("acme")
        work = tenancy.carried(seen)
        assert in_thread(lambda: (work(), seen())) == (("acme", "derived"), ("default", "default"))
        assert seen() == ("acme", "explicit")

    fresh(look)


def test_T1_a_pool_of_threads_serves_several_tenants_without_mixing_them() -> None:
    barrier = threading.Barrier(4)

    def work() -> tuple[str, str]:
        barrier.wait(30)
        return tenancy.require_tenant(SITE), tenancy.tenant_source()

    def look() -> list[tuple[str, str]]:
        with ThreadPoolExecutor(4) as pool:
            futures = []
            for number in range(4):
                tenancy.set_current_tenant(f"t{number}")
                futures.append(pool.submit(tenancy.carried(work)))
            return [future.result() for future in futures]

    assert fresh(look) == [(f"t{number}", "derived") for number in range(4)]


def test_T1_a_context_copied_into_a_thread_is_derived() -> None:
    def look() -> tuple[str, str]:
        tenancy.set_current_tenant("acme")
        context = contextvars.copy_context()
        return in_thread(lambda: context.run(seen))

    assert fresh(look) == ("acme", "derived")


def test_T1_handing_over_nothing_hands_over_nothing() -> None:
    def look() -> None:
        with pytest.raises(TenantContextMissingError):
            tenancy.carried(lambda: tenancy.require_tenant(SITE))()

    fresh(look)


# -- asyncio ------------------------------------------------------------------------------------------


def test_T1_tasks_have_it_from_their_maker_as_derived_and_keep_their_own() -> None:
    async def task(tenant: str | None) -> list[tuple[str, str]]:
        first = seen()
        if tenant is not None:
            tenancy.set_current_tenant(tenant)
        await asyncio.sleep(0)
        return [first, seen(), await asyncio.create_task(_seen()), await asyncio.to_thread(seen)]

    async def _seen() -> tuple[str, str]:
        return seen()

    async def main() -> list[list[tuple[str, str]]]:
        return await asyncio.gather(task("b"), task("c"), task(None))

    def look() -> list[list[tuple[str, str]]]:
        tenancy.set_current_tenant("a")
        found = asyncio.run(main())
        assert seen() == ("a", "explicit")
        return found

    derived = ("a", "derived")
    assert fresh(look) == [
        [derived, ("b", "explicit"), ("b", "derived"), ("b", "derived")],
        [derived, ("c", "explicit"), ("c", "derived"), ("c", "derived")],
        [derived, derived, derived, derived],
    ]


# -- processes ----------------------------------------------------------------------------------------


def _in_process(site: str) -> tuple[str, str]:
    return tenancy.require_tenant(site), tenancy.tenant_source()


def _refusal(site: str) -> str:
    try:
        tenancy.require_tenant(site)
    except TenantContextMissingError as error:
        return error.site
    return "written"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_T1_a_pool_of_processes_gets_it_as_derived(method: str) -> None:
    def look() -> tuple[tuple[str, str], str]:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
            bare = pool.submit(_refusal, SITE).result(60)  # forks the worker, while nothing is set
            tenancy.set_current_tenant("租户")
            return pool.submit(tenancy.carried(_in_process), SITE).result(60), bare

    assert fresh(look) == (("租户", "derived"), SITE)


def test_T1_it_is_pickled_with_what_it_carries() -> None:
    def look() -> Any:
        tenancy.set_current_tenant("acme")
        return pickle.dumps(tenancy.carried(_in_process))

    work = pickle.loads(fresh(look))
    assert fresh(lambda: work(SITE)) == ("acme", "derived")


# -- the probe ------------------------------------------------------------------------------------------


def test_T1_each_wish_to_write_is_counted_by_site_and_source() -> None:
    before = tenancy.write_probe_snapshot()

    def look() -> None:
        with pytest.raises(TenantContextMissingError):
            tenancy.require_tenant("probe.a")
        tenancy.set_current_tenant("acme")
        tenancy.require_tenant("probe.a")
        tenancy.require_tenant("probe.a")
        tenancy.require_tenant("probe.b")
        tenancy.carried(tenancy.require_tenant)("probe.b")

    fresh(look)
    after = tenancy.write_probe_snapshot()
    counted = {key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)}
    assert counted == {
        ("probe.a", "default"): 1,
        ("probe.a", "explicit"): 2,
        ("probe.b", "explicit"): 1,
        ("probe.b", "derived"): 1,
    }
    after.clear()
    assert tenancy.write_probe_snapshot()
