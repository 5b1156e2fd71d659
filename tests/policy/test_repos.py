"""G6: which repository a task names, and what a host denies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plaita.policy.copies import continue_copy, same_body, wake_carrier
from plaita.policy.repos import is_denied, last_name, path_of, repo_of, repo_of_input


@pytest.mark.parametrize(
    ("given", "repo"),
    [
        ({"repo": "/srv/work/app"}, "/srv/work/app"),
        ({"repo": " app "}, "app"),
        ({"repo": "git@host:org/app.git"}, "git@host:org/app.git"),
        ({"run_dir": "/srv/work/app/.flowcast/runs/7"}, "/srv/work/app"),
        ({"run_dir": "/srv/work/app/.flowcast"}, "/srv/work/app"),
        ({"run_dir": "/srv/a/.flowcast/x/.flowcast/y"}, "/srv/a"),
        ({"run_dir": "/srv/work/app"}, "/srv/work/app"),
        ({"run_dir": "/srv/my.flowcast/app"}, "/srv/my.flowcast/app"),
        ({"repo": "/srv/a", "run_dir": "/srv/b/.flowcast/1"}, "/srv/a"),
        ({"repo": "", "run_dir": "/srv/b/.flowcast/1"}, "/srv/b"),
        ({"repo": None, "run_dir": 7}, None),
        ({"repo": ["/srv/a"]}, None),
        ({"repo": "x" * 5000}, None),
        ({}, None),
        ([], None),
        ("repo", None),
        (None, None),
    ],
)
def test_G6_the_repository_of_an_input(given: Any, repo: str | None) -> None:
    assert repo_of_input(given) == repo


@pytest.mark.parametrize(
    ("repo", "name"), [("/srv/work/app", "app"), ("/srv/work/app//", "app"), ("app", "app"), ("/", ""), ("", "")]
)
def test_G6_the_last_name_counts(repo: str, name: str) -> None:
    assert last_name(repo) == name


@pytest.mark.parametrize(
    ("repo", "denied"),
    [
        ("/srv/secret", True),
        ("secret", True),
        ("/elsewhere/secret/", True),
        ("/srv/secret-2", False),
        ("/srv/Secret", False),
        ("/secret/app", False),
        ("/", False),
        (None, False),
    ],
)
def test_G6_denied_by_the_last_name_alone(repo: str | None, denied: bool) -> None:
    assert is_denied(repo, frozenset({"secret"})) is denied
    assert is_denied(repo, frozenset()) is False


@pytest.mark.parametrize(
    ("fields", "payload", "repo"),
    [
        ({b"repo": b"/srv/a"}, {"type": "start", "params": {"repo": "/srv/b"}}, "/srv/a"),
        ({}, {"type": "start", "params": {"repo": "/srv/b"}}, "/srv/b"),
        ({b"repo": b""}, {"type": "start", "params": {"repo": "/srv/b"}}, None),
        ({}, {"type": "resume", "params": {"repo": "/srv/b"}}, None),
        ({b"repo": b"/srv/a"}, {"type": "resume"}, "/srv/a"),
        ({b"repo": b"\xff"}, {}, "\ufffd"),
        ({}, {}, None),
    ],
)
def test_G6_the_entry_stands_above_the_body(
    fields: dict[bytes, bytes], payload: dict[str, Any], repo: str | None
) -> None:
    assert repo_of(fields, payload) == repo


def test_G6_copies_say_what_their_source_said() -> None:
    payload = json.dumps({"type": "start", "flow_id": "f", "params": {"run_dir": "/srv/a/.flowcast/1"}}).encode()
    copy = dict(continue_copy({b"payload": payload}, "1-0", execution_id="e", flow_id="f", tenant_id="t"))
    assert copy["repo"] == "/srv/a"
    flat = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in copy.items()}
    again = dict(continue_copy(flat, "2-0", execution_id="e", flow_id="f", tenant_id="t"))
    assert again["repo"] == "/srv/a"
    assert dict(same_body(flat, "3-0", {}))["repo"] == "/srv/a"
    plain = json.dumps({"type": "start", "flow_id": "f", "params": {}}).encode()
    assert "repo" not in dict(continue_copy({b"payload": plain}, "1-0", execution_id="e", flow_id="f", tenant_id="t"))


@pytest.mark.parametrize(
    ("repo", "path"),
    [
        ("/srv/app", "/srv/app"),
        ("/srv/проект", "/srv/проект"),
        ("/", "/"),
        ("app", None),
        ("./app", None),
        ("~/app", None),
        ("git@host:org/app.git", None),
        ("https://host/org/app", None),
        ("/srv/a\0b", None),
        (None, None),
    ],
)
def test_G4_the_path_that_a_host_must_have(repo: str | None, path: str | None) -> None:
    assert path_of(repo) == path


def test_G6_a_retry_keeps_to_the_repository_and_the_end_of_a_wait_goes_anywhere() -> None:
    source = {b"payload": json.dumps({"type": "start", "params": {"repo": "/srv/app"}}).encode()}
    whose: dict[str, str] = {"execution_id": "e", "flow_id": "f", "tenant_id": "t"}
    assert dict(continue_copy(source, "1-0", **whose))["repo"] == "/srv/app"
    for kind in ("event", "timeout"):
        assert "repo" not in dict(wake_carrier(source, "1-0", kind, **whose, wait="w"))  # type: ignore[arg-type]
