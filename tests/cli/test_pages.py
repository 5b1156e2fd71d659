"""README, docs and --help: each command line in them is one that the programs take, each link leads somewhere, and each
command is named in the README."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from plaita.cli import main, supervisor

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS: dict[str, Any] = {
    "plaita": typer.main.get_command(main.app),
    "plaita-supervisor": typer.main.get_command(supervisor.app),
}
NO_BRACKETS = str.maketrans("", "", "[]")  # around what may be left out
_LINE = re.compile(r"^(?:    |)(?:\$ )?(?:[A-Z_]+=\S+ )*(plaita(?:-supervisor)? .*)$", re.MULTILINE)


def commands(page: Path) -> Iterator[str]:
    """The command lines in blocks of code, one each; a comment behind them and what the shell makes of them is cut."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    for line in _LINE.findall("\n".join(blocks(text))):
        for one in re.split(r" && | \| ", line):
            if one.startswith("plaita"):
                yield re.sub(r"\s+(&|[<>].*)?$", "", re.sub(r"\s+#.*$", "", one)).translate(NO_BRACKETS)


def blocks(text: str) -> Iterator[str]:
    """Indented lines, and those between fences."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line


def taken(line: str) -> None:
    """Have the program read it, as far as it goes without doing anything. Raises what it says to the user."""
    program, *words = shlex.split(line, comments=True)
    command: Any = PROGRAMS[program]
    context = command.make_context(program, list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, (*path, name))


ALL = [each for name, command in PROGRAMS.items() for each in leaves(command, (name,))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_is_one(page: Path) -> None:
    for line in commands(page):
        try:
            taken(line)
        except Exception as error:
            raise AssertionError(f"{page.name}: {line}: {error}") from error


def test_commands_are_found() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 40
    with pytest.raises(Exception, match="--nope"):
        taken("plaita event publish x --nope")
    with pytest.raises(Exception, match="No such command"):
        taken("plaita event tell x")


@pytest.mark.parametrize(("path", "command"), ALL, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_each_command_shows_an_example_that_it_takes(path: tuple[str, ...], command: Any) -> None:
    text = " ".join((command.help or "").split())
    assert "Example: " in text, path
    example = text.partition("Example: ")[2]
    assert example.startswith(" ".join(path)), example
    taken(example)


def groups(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        yield name, command
        for inner, each in command.commands.items():
            yield from groups(each, f"{name} {inner}")


@pytest.mark.parametrize(
    ("name", "group"), [each for name, command in PROGRAMS.items() for each in groups(command, name)]
)
def test_what_commands_do_is_said_in_full_where_they_are_listed(name: str, group: Any) -> None:
    text = group.get_help(group.make_context(name, [], resilient_parsing=True))
    listed = text.partition("Commands:")[2].splitlines()
    assert listed, name
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize(("path", "command"), ALL, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_each_command_is_named_in_the_readme(path: tuple[str, ...], command: Any) -> None:
    table = PAGES[0].read_text("utf-8").partition("## Commands")[2].partition("## ")[0]
    program, *group, name = path
    rows = [row for row in table.splitlines() if row.startswith(f"| `{' '.join([program, *group])} ")]
    assert any(re.search(rf"\b{re.escape(name)}\b", row) for row in rows), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text("utf-8")):
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor[1:] in slugs, f"{target}{anchor}"


def test_each_page_is_named_in_the_readme() -> None:
    text = PAGES[0].read_text("utf-8")
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in text] == []
