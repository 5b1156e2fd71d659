"""docs/operations.md: what it names exists, and its figures are those of the files (ledger O6)."""

from __future__ import annotations

import re
from typing import Any

import typer
from test_unit_files import EXPOSURE
from typer.main import get_command
from unit_file import DROP_INS, FOLDER, PLAIN, ROOT, Unit

from plaita.cli.main import app as plaita
from plaita.cli.supervisor import app as supervisor
from plaita.runtime_config.settings import every_setting
from plaita.supervisor.life import EXIT_BUG, EXIT_CLEAN, EXIT_CONFIGURATION, EXIT_KILLED_WORK

PAGE = (ROOT / "docs/operations.md").read_text("utf-8")
CODE = "\n".join(span or line for span, line in re.findall(r"`([^`\n]+)`|^ {4}(.*)$", PAGE, re.MULTILINE))
EXAMPLES = {"PLAITA_REDIS_URL_FILE"}


def commands(app: typer.Typer) -> set[str]:
    """Every command of a typer application, groups with their own, as it is typed."""
    found: set[str] = set()
    todo: list[tuple[tuple[str, ...], Any]] = [((), get_command(app))]
    while todo:
        words, command = todo.pop()
        found.add(" ".join(words))
        todo += [((*words, name), inner) for name, inner in getattr(command, "commands", {}).items()]
    return found - {""}


def test_every_command_on_the_page_exists() -> None:
    for program, app in (("plaita", plaita), ("plaita-supervisor", supervisor)):
        known = commands(app)
        for line in re.findall(rf"(?<![\w/-]){program} ([a-z][a-z -]*[a-z])", CODE):
            words = line.split()
            assert words[0] in known, f"{program} {line}"
            if any(name.startswith(f"{words[0]} ") for name in known) and len(words) > 1:
                assert f"{words[0]} {words[1]}" in known, f"{program} {line}"


def test_every_variable_on_the_page_exists() -> None:
    known = {variable for setting in every_setting().values() for variable in setting.environment} | EXAMPLES
    assert set(re.findall(r"(?<!\.)PLAITA_[A-Z_]+", PAGE)) <= known


def test_the_page_and_the_files_say_the_same() -> None:
    for path in (*DROP_INS, *FOLDER.glob("*.service"), *FOLDER.glob("*.conf"), FOLDER / "environment.example"):
        assert path.name in PAGE, path
    assert f"gives it {EXPOSURE['']}, with `strict.conf` {EXPOSURE['strict.conf']}" in PAGE
    assert f"started again after {Unit(PLAIN).one('RestartSec')} s" in PAGE
    assert f"the loop stood for {Unit(PLAIN).one('WatchdogSec')} s" in PAGE
    for code in (EXIT_CLEAN, EXIT_KILLED_WORK, EXIT_CONFIGURATION, EXIT_BUG):
        assert f"\n| {code} |" in PAGE
