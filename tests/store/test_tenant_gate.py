"""Whether a tenant may begin anything now, by table (ledger T2, T3): the policy, and its Lua twin held to it."""

from __future__ import annotations

import pytest

from plaita.policy import tenants
from plaita.policy.tenants import Ruling, Verdict
from plaita.store.call import Call, Script, script

EPOCHS: list[tuple[str | None, str, str]] = [
    (None, "7", "missing"),
    ("", "7", "missing"),
    ("7", "7", ""),
    ("007", "7", ""),
    ("0", "00", ""),
    ("6", "7", "older"),
    ("9", "10", "older"),
    ("10", "9", "newer"),
    ("0009", "10", "older"),
    ("9007199254740992", "9007199254740993", "older"),  # no double tells these apart
    ("1" + "0" * 40, "9" * 40, "newer"),
    ("2026-11-30", "2026-11-30", ""),
    ("2026-11-09", "2026-11-30", "older"),
    ("2027", "2026-11-30", "newer"),  # not digits both: text
    ("b", "a", "newer"),
    ("B", "a", "older"),  # by bytes, whatever the server's locale says
    ("a", "ab", "older"),
    ("ab", "a", "newer"),
    ("10", "9a", "older"),
    ("é", "z", "newer"),
    ("e\u0301", "é", "older"),
    ("-1", "1", "older"),
    ("1.5", "1.10", "newer"),
    ("٣", "3", "newer"),  # other digits are text
    (" 7", "7", "older"),
]

QUOTAS: list[tuple[str | None, int | None]] = [
    (None, None),
    ("", None),
    ("0", None),
    ("00", None),
    ("1", 1),
    ("007", 7),
    ("250", 250),
    ("-1", None),
    ("1.5", None),
    ("1e3", None),
    ("0x10", None),
    (" 2", None),
    ("many", None),
    ("٣", None),
]


@pytest.mark.parametrize(("there", "expected", "why"), EPOCHS)
def test_T2_epochs_differ(there: str | None, expected: str, why: str) -> None:
    assert tenants.epoch_trouble(there, expected, strict=True) == why
    verdict = Verdict.EPOCH if why else Verdict.ACTIVE
    assert tenants.judge("acme", "active", there, expected, strict=True) == Ruling(verdict, why)


@pytest.mark.parametrize(("there", "expected", "why"), EPOCHS)
@pytest.mark.parametrize("tenant", ["", "default"])
def test_T2_the_default_tenant_stays_open_under_any_epoch(
    tenant: str, there: str | None, expected: str, why: str
) -> None:
    assert tenants.judge(tenant, None, there, expected, strict=True) == Ruling(Verdict.ACTIVE)


@pytest.mark.parametrize(("there", "expected", "why"), EPOCHS)
def test_T2_the_check_can_be_switched_off(there: str | None, expected: str, why: str) -> None:
    assert tenants.judge("acme", None, there, expected, strict=False) == Ruling(Verdict.ACTIVE)
    assert tenants.judge("acme", None, there, None, strict=True) == Ruling(Verdict.ACTIVE)
    assert tenants.judge("acme", "disabled", there, expected, strict=False) == Ruling(Verdict.DISABLED)


@pytest.mark.parametrize("status", [None, "", "active", "Disabled", "disabled ", "\ufffd"])
def test_T2_what_does_not_say_disabled_is_active(status: str | None) -> None:
    assert tenants.judge("acme", status, None, None, strict=True) == Ruling(Verdict.ACTIVE)


@pytest.mark.parametrize("tenant", ["acme", "default"])
def test_T2_a_disabled_tenant(tenant: str) -> None:
    assert tenants.judge(tenant, "disabled", "7", "7", strict=True) == Ruling(Verdict.DISABLED)


def test_T2_a_status_of_another_deployment_drops_nothing() -> None:
    assert tenants.judge("acme", "disabled", "6", "7", strict=True) == Ruling(Verdict.EPOCH, "older")


@pytest.mark.parametrize(("text", "quota"), QUOTAS)
def test_T3_what_a_quota_says(text: str | None, quota: int | None) -> None:
    assert tenants.quota_of(text) == quota


# -- the twin -------------------------------------------------------------------------------------


def lua(world, function: str, *cases: tuple[str | None, ...]) -> list[tuple[str, ...]]:
    """What a function of the library answers to each case, as texts; None is what pcall answers for nothing."""
    twin = Script("_test_tenant_gate")  # not script(): its sha is kept, and the text is another for each function
    twin.__dict__["text"] = script("drop_disabled").text.partition("if not tenant_shut")[0] + (
        "local out = {'ok'}\nlocal width = tonumber(ARGV[1])\n"
        "for i = 2, #ARGV, width do\n  local words = {}\n"
        "  for j = 0, width - 1 do words[j + 1] = ARGV[i + j] ~= '(none)' and ARGV[i + j] end\n"
        f"  local a, b = {function}(unpack(words))\n"
        "  out[#out + 1] = {tostring(a or ''), tostring(b or '')}\nend\nreturn out"
    )
    args = [str(len(cases[0]))] + ["(none)" if word is None else word for case in cases for word in case]
    call = Call("twin", twin, (), args, "writer", True, lambda reply: [tuple(x.decode() for x in one) for one in reply])
    return world.do(call)


@pytest.mark.parametrize("status", [None, "", "active", "disabled", "Disabled"])
@pytest.mark.parametrize("tenant", ["default", "", "acme", "a%b"])
def test_T2_lua_judges_like_python(world, tenant: str, status: str | None) -> None:
    cases = [(tenant, status, there, expected) for there, expected, _ in EPOCHS]
    cases += [(tenant, status, there, "") for there, _, _ in EPOCHS]
    wanted = []
    for _, _, there, expected in cases:
        ruling = tenants.judge(tenant, status, there, expected, strict=True)
        shut = ruling.verdict is not Verdict.ACTIVE
        wanted.append((ruling.verdict.value if shut else "", ruling.why))
    assert lua(world, "tenant_shut", *cases) == wanted


def test_T3_lua_reads_quotas_like_python(world) -> None:
    found = lua(world, "quota_of", *[(said,) for said, _ in QUOTAS])
    assert [first for first, _ in found] == ["" if quota is None else str(quota) for _, quota in QUOTAS]
