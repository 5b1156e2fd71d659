"""What holds for every script: documented, complete, no JSON library, acks in two places only."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from plaita.store.call import Script, script

ROOT = Path(str(resources.files("plaita.store")))
NAMES = sorted(path.stem for path in (ROOT / "scripts").glob("*.lua"))


def test_there_are_scripts():
    assert len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_each_says_keys_and_arguments_and_uses_no_json(name: str):
    text = (ROOT / "scripts" / f"{name}.lua").read_text()
    head = "\n".join(line for line in text.splitlines()[:14] if line.startswith("--"))
    assert re.search(r"KEYS", head), "the head names the keys"
    whole = script(name).text
    assert "cjson" not in whole
    assert "-- include:" not in whole


@pytest.mark.parametrize("name", NAMES)
def test_each_is_used_and_compiles(name: str, world):
    calls = "".join(path.read_text() for path in ROOT.glob("*.py"))
    assert f'script("{name}")' in calls
    world.raw("SCRIPT", "LOAD", script(name).text)


def test_an_include_is_taken_once_though_two_ask_for_it():
    assert script("finish").text.count("local function text(number)") == 1


def test_the_sha_is_the_servers(world):
    text = script("commit").text
    assert world.raw("SCRIPT", "LOAD", text).decode() == script("commit").sha


def test_a_missing_script_is_an_error_at_first_use():
    with pytest.raises(FileNotFoundError):
        _ = Script("no_such_script").text


def test_acks_stand_in_scripts_and_carriers_only():
    """Ledger R3: one place decides that a carrier is done with."""
    package = ROOT.parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\b(XACK|xack)\b", re.sub(r'""".*?"""|#.*', "", path.read_text(), flags=re.S))
    }
    assert found <= {"store/carriers.py"}


def test_no_script_claims_without_justid():
    """A claim without JUSTID costs a delivery (DECISIONS 5)."""
    for path in (ROOT / "scripts").rglob("*.lua"):
        for line in path.read_text().splitlines():
            if "'XCLAIM'" in line:
                assert "'JUSTID'" in line, f"{path.name}: {line}"
