"""The ``plaita`` commands against a real server: JSON forms of CONTRACT, exit codes, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plaita import jsontext
from plaita.client import Client
from plaita.store import executions
from plaita.store.embedded import Embedded

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
Run = Callable[..., Any]


@pytest.fixture
def stored(hello: dict[str, Any], connected: str, plaita: Run, flow_file: Callable[..., str]) -> str:
    """The id of a stored flow."""
    assert plaita("flow", "put", flow_file(hello), "--id", "hello").code == 0
    return "hello"


# -- flows ----------------------------------------------------------------------------------------


def test_flow_put_gives_versions_and_knows_content(
    hello: dict[str, Any], connected: str, plaita: Run, flow_file: Callable[..., str]
) -> None:
    first = plaita("flow", "put", flow_file(hello), "--id", "hello", "--json").json
    assert first["ok"] is True
    assert (first["flow_id"], first["version"], first["created"]) == ("hello", "1", True)
    assert re.fullmatch(r"[0-9a-f]{64}", first["flow_hash"])
    again = plaita("flow", "put", flow_file(hello), "--id", "hello", "--json").json
    assert (again["version"], again["created"], again["flow_hash"]) == ("1", False, first["flow_hash"])
    other = plaita("flow", "put", flow_file({**hello, "desc": "new"}), "--id", "hello", "--json").json
    assert (other["version"], other["created"]) == ("2", True)


def test_flow_put_refuses_other_content_without_force(
    hello: dict[str, Any], stored: str, plaita: Run, flow_file: Callable[..., str]
) -> None:
    file = flow_file({**hello, "desc": "other"})
    told = plaita("flow", "put", file, "--id", stored, "--version", "1")
    assert told.code == 1
    assert "--force" in told.err
    assert plaita("flow", "put", file, "--id", stored, "--version", "1", "--force").code == 0


def test_flow_list_and_show(hello: dict[str, Any], stored: str, plaita: Run) -> None:
    assert plaita("flow", "list", "--json").json == {"flows": [{"flow_id": "hello", "latest": "1", "versions": 1}]}
    shown = plaita("flow", "show", "hello", "--json").json
    assert shown["definition"] == hello
    assert list(shown["definition"]["nodes"][0]) == list(hello["nodes"][0]), "the author's order of keys"
    assert ISO.fullmatch(shown["versions"][0]["put_at"])
    assert "hello" in plaita("flow", "list").out
    assert '"greet"' in plaita("flow", "show", "hello").out
    for words in (("show", "nope"), ("show", "hello", "--version", "9"), ("rm", "nope")):
        told = plaita("flow", *words)
        assert (told.code, told.out) == (1, "")
    assert plaita("flow", "rm", "hello", "--json").json == {
        "flow_id": "hello",
        "versions_removed": 1,
        "executions_going_on": 0,
    }


def test_flow_put_asks_live_supervisors_for_node_types(
    connected: str, server: Embedded, plaita: Run, flow_file: Callable[..., str]
) -> None:
    from plaita.store import registry

    file = flow_file({"nodes": [{"type": "far_away", "id": "a", "next": "e"}, {"type": "end", "id": "e"}]}, "far.json")
    assert plaita("flow", "put", file).code == 2
    with Client() as client:
        for name, record in (("host1", b'{"node_types": ["far_away", 5]}'), ("host2", b"not json"), ("host3", b"[]")):
            client.perform(_call(registry.register(client.keys, name, "a" * 16, record, 30_000, None)))
    assert plaita("flow", "put", file).code == 0


def _call(call: Any) -> Any:
    from plaita.client import operations

    return operations.ask(call)


# -- start ----------------------------------------------------------------------------------------


def test_start_json_is_the_contract(stored: str, plaita: Run) -> None:
    answer = plaita("start", stored, "--input", '{"name": "x"}', "--json").json
    assert set(answer) == {"execution_id", "flow_id", "tenant_id", "message_id"}
    assert (answer["flow_id"], answer["tenant_id"]) == ("hello", "default")
    assert re.fullmatch(r"\d+-\d+", answer["message_id"])


def test_start_leaves_the_carrier_of_the_reference(stored: str, plaita: Run) -> None:
    execution_id = plaita("start", stored, "--json").json["execution_id"]
    with Client() as client:
        from plaita.store import carriers

        [entry] = client.perform(
            _call(carriers.take(client.keys, carriers.Take("c", 5, 1000, f"h/{'0' * 16}")))
        ).entries
    payload = json.loads(entry.fields[b"payload"])
    assert payload["type"] == "start"
    assert payload["flow_id"] == "hello"
    assert payload["version"] == "latest"
    assert payload["execution_id"] == execution_id
    assert payload["tenant_id"] == "default"
    assert ISO.fullmatch(payload["timestamp"])
    assert entry.fields[b"schema_version"] == b"1"
    assert entry.fields[b"execution_id"].decode() == execution_id
    assert b"config_family" not in entry.fields


def test_show_json_is_the_contract(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1", "--input", '{"name": "x", "n": 12345678901234567890123}')
    shown = plaita("show", "e1", "--json")
    document = shown.json
    assert {
        "execution_id", "flow_id", "version", "flow_hash", "tenant_id", "status", "input", "output", "error",
        "last_node_id", "nodes", "waiting", "holder", "created_at", "last_update_time",
    } <= set(document)  # fmt: skip
    assert document["status"] == "pending"
    assert document["version"] == "1"
    assert "12345678901234567890123" in shown.out, "integers stay exact"
    assert document["output"] is document["error"] is document["waiting"] is document["holder"] is None
    assert document["nodes"] == []
    assert ISO.fullmatch(document["created_at"])
    assert "pending" in plaita("show", "e1").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["start", "hello", "--input", "{"], "--input"),
        (["start", "hello", "--input", "@/no/such/file"], "cannot be read"),
        (["start", "hello", "--input", "NaN"], "NaN"),
        (["start", "hello", "--input", '"\\ud800"'], "surrogate"),
        (["start", "hello", "--input", "1e999"], "infinity"),
        (["start", "hello", "--input", "9" * 5000], "digits"),
        (["start", "hello", "--input", "[" * 9000 + "]" * 9000], "depth"),
        (["start", "hello", "--id", "a b"], "U+0020"),
        (["start", "hello", "--id", ""], "0 characters"),
        (["start", "hello", "--id", "x" * 201], "201"),
        (["start", "hello", "--id", "a\nb"], "U+000A"),
        (["start", "hello", "--id", "\udcff"], "surrogate"),
        (["start", "a{b}", "--id", "x"], "flow id"),
        (["start", "hello", "--version", " 1"], "version"),
        (["start", "hello", "--dedup-key", ""], "dedup key"),
        (["start", "hello", "--timeout", "3"], "--wait"),
        (["start", "hello", "--wait", "--timeout", "nan"], "timeout"),
        (["start", "hello", "--wait", "--timeout", "-1"], "timeout"),
        (["start", "hello", "--tenant", "a:b"], "tenant"),
        (["start", "hello", "--tenant", "execution"], "tenant"),
        (["start"], "FLOW_ID"),
        (["start", "hello", "--nonsense"], "--nonsense"),
        (["show", "a b"], "execution id"),
        (["wait"], "ID"),
        (["wait", "a b"], "execution id"),
        (["cancel", "e\0"], "execution id"),
        (["cancel", "e", "--reason", "x" * 3000], "reason"),
        (["list", "--status", "sleeping"], "status"),
        (["list", "--limit", "-1"], "limit"),
        (["list", "--limit", "many"], "--limit"),
        (["list", "--flow", "a b"], "flow id"),
        (["flow", "show", "a b"], "flow id"),
        (["nonsense"], "nonsense"),
        (["list", "--redis-url", "ftp://x"], "--redis-url"),
        (["list", "--redis-url", "redis://h/0", "--embedded", "/tmp/x"], "exclude"),
    ],
    ids=lambda value: value[:2] if isinstance(value, list) else "",
)
def test_bad_input_is_exit_2(stored: str, plaita: Run, words: list[str], said: str) -> None:
    told = plaita(*words)
    assert told.code == 2, told
    assert said in told.err
    assert told.out == ""


def test_refusals_are_exit_1(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1")
    for words, said in [
        (["start", "nope"], "no flow 'nope'"),
        (["start", stored, "--version", "7"], "no version '7'"),
        (["start", stored, "--id", "e1"], "exists already"),
        (["show", "nope"], "no execution"),
        (["wait", "nope"], "no execution"),
        (["wait", "e1", "nope", "--timeout", "5"], "no execution"),
        (["cancel", "nope"], "no execution"),
        (["rm", "nope"], "no execution"),
    ]:
        told = plaita(*words, "--json")
        assert (told.code, told.out) == (1, ""), words
        assert said in told.err


def test_input_from_file_and_stdin(stored: str, plaita: Run, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"name": "file"}')
    plaita("start", stored, "--id", "e1", "--input", f"@{tmp_path}/in.json")
    plaita("start", stored, "--id", "e2", "--input", "-", stdin='{"name": "stdin"}')
    assert plaita("show", "e1", "--json").json["input"] == {"name": "file"}
    assert plaita("show", "e2", "--json").json["input"] == {"name": "stdin"}


def test_input_keeps_the_last_of_two_keys(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1", "--input", '{"a": 1, "a": 2}')
    assert plaita("show", "e1", "--json").json["input"] == {"a": 2}


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1"])
def test_a_time_that_is_none_is_refused_before_anything_starts(stored: str, plaita: Run, seconds: str) -> None:
    told = plaita("start", stored, "--id", "e1", "--wait", "--timeout", seconds)
    assert (told.code, told.out) == (2, "")
    assert plaita("list", "--json").json["total"] == 0


def test_dedup_key_answers_the_first_execution(stored: str, plaita: Run) -> None:
    first = plaita("start", stored, "--dedup-key", "order-17", "--json").json
    second = plaita("start", stored, "--dedup-key", "order-17", "--json").json
    assert second["execution_id"] == first["execution_id"]
    assert second["deduplicated"] is True
    assert second["message_id"] is None
    assert plaita("list", "--json").json["total"] == 1


@pytest.mark.parametrize("odd", ["日本語-αβγ", "index", "a:b/c", "é", "0"])
def test_odd_ids_stay_apart(stored: str, plaita: Run, odd: str) -> None:
    assert plaita("start", stored, "--id", odd).code == 0
    document = plaita("show", odd, "--json").json
    assert document["status"] == "pending"
    assert plaita("list", "--json").json["total"] == 1


def test_tenants_do_not_see_each_other(
    hello: dict[str, Any], stored: str, plaita: Run, flow_file: Callable[..., str]
) -> None:
    plaita("start", stored, "--id", "e1")
    assert plaita("start", stored, "--tenant", "b").code == 1
    plaita("flow", "put", flow_file(hello), "--id", "hello", "--tenant", "b")
    assert plaita("start", stored, "--id", "e1", "--tenant", "b", "--json").json["tenant_id"] == "b"
    for words in (["cancel", "e1"], ["rm", "e1", "--force"], ["show", "e1"]):
        assert plaita(*words, "--tenant", "c").code == 1
    assert plaita("list", "--tenant", "b", "--json").json["total"] == 1
    assert plaita("list", "--json").json["total"] == 1


# -- list, wait, cancel, rm -----------------------------------------------------------------------


def test_list_json_filters_and_counts(
    hello: dict[str, Any], stored: str, plaita: Run, flow_file: Callable[..., str]
) -> None:
    plaita("flow", "put", flow_file(hello), "--id", "other")
    for number in range(3):
        plaita("start", stored, "--id", f"e{number}")
    plaita("start", "other", "--id", "o1")
    everything = plaita("list", "--json").json
    assert everything["total"] == 4
    assert everything["executions"][0]["execution_id"] == "o1", "newest first"
    assert plaita("list", "--flow", "other", "--json").json["total"] == 1
    assert plaita("list", "--status", "error", "--json").json == {"executions": [], "total": 0}
    limited = plaita("list", "--limit", "2", "--json").json
    assert (len(limited["executions"]), limited["total"]) == (2, 4)
    assert "o1" in plaita("list").out


def test_wait_times_out_with_exit_4_and_shows_what_is(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1")
    waited = plaita("wait", "e1", "--timeout", "0.2", "--json")
    assert waited.code == 4
    assert waited.json["status"] == "pending"
    assert "e1 is pending" in waited.err
    assert plaita("start", stored, "--wait", "--timeout", "0", "--json").code == 4


def _finish(execution_id: str, status: str, *, output: Any = None, error: Any = None) -> None:
    """End an execution as a supervisor would: begin, then finish."""
    with Client() as client:
        begun = client.perform(
            _call(
                executions.begin(
                    client.keys, executions.Begin(execution_id, f"host1/{'0' * 16}", "0" * 16, 60_000, "q", "1-1", 5)
                )
            )
        )
        end = executions.Finish(
            execution_id=execution_id,
            token=begun.token,
            step=1,
            status=status,
            node_id="end",
            result=b'"done"',
            timing=jsontext.dumps(
                {"order": 1, "type": "end", "status": status, "started_at": 1000, "ended_at": 2000, "attempts": 1}
            ),
            output=None if output is None else jsontext.dumps(output),
            error=None if error is None else jsontext.dumps(error),
            active_ms_delta=1,
            stream="q",
            entry_id="1-1",
            state={},
            retention_ms=60_000,
            dead_letter=None,
        )
        client.perform(_call(executions.finish(client.keys, end)))


def test_wait_ends_with_the_code_of_the_outcome(stored: str, plaita: Run) -> None:
    for number in range(3):
        plaita("start", stored, "--id", f"e{number}")
    _finish("e0", "completed", output={"a": 1})
    _finish("e1", "error", error={"code": -500, "message": "broke", "error_type": "node_error", "node": "end"})
    _finish("e2", "cancelled")
    done = plaita("wait", "e0", "--json")
    assert (done.code, done.json["output"]) == (0, {"a": 1})
    assert plaita("wait", "e1").code == 1
    assert plaita("wait", "e2").code == 1
    several = plaita("wait", "e0", "e1", "e0", "--json")
    assert several.code == 1
    assert [one["execution_id"] for one in several.json["executions"]] == ["e0", "e1", "e0"]


def test_show_of_an_ended_execution(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1")
    _finish("e1", "error", error={"code": 4001, "message": "no\x1b[31m stock", "error_type": "error_result"})
    document = plaita("show", "e1", "--json").json
    assert {"code", "message", "error_type", "node", "failed_node", "node_retries"} <= set(document["error"])
    assert document["error"]["code"] == 4001
    assert document["error"]["node_retries"] == 0
    assert document["nodes"] == [
        {
            "id": "end",
            "type": "end",
            "status": "error",
            "started_at": "1970-01-01T00:00:01.000Z",
            "ended_at": "1970-01-01T00:00:02.000Z",
            "attempts": 1,
        }
    ]
    assert document["holder"] is None
    told = plaita("show", "e1").out
    assert "4001" in told
    assert "\x1b" not in told, "stored text cannot write to the terminal what it likes"


def test_show_names_the_holder(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1")
    with Client() as client:
        begin = executions.Begin("e1", f"rack/host1/{'0' * 16}", "0" * 16, 60_000, "q", "1-1", 5)
        client.perform(_call(executions.begin(client.keys, begin)))
    document = plaita("show", "e1", "--json").json
    assert (document["status"], document["holder"]) == ("running", "rack/host1")
    told = plaita("rm", "e1")
    assert told.code == 1
    assert "--force" in told.err


def test_cancel_says_what_it_did(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1")
    assert plaita("cancel", "e1", "--reason", "wrong", "--json").json == {
        "execution_id": "e1",
        "status": "pending",
        "cancel_requested": True,
        "cancel": "requested",
    }
    assert plaita("show", "e1", "--json").json["cancel_reason"] == "wrong"
    plaita("start", stored, "--id", "e2")
    _finish("e2", "completed", output=1)
    late = plaita("cancel", "e2")
    assert late.code == 0
    assert "completed" in late.out


def test_rm_deletes_for_good(stored: str, plaita: Run) -> None:
    plaita("start", stored, "--id", "e1")
    _finish("e1", "completed", output=1)
    assert plaita("rm", "e1", "--json").json["existed"] is True
    assert plaita("show", "e1").code == 1
    told = plaita("start", stored, "--id", "e1")
    assert told.code == 1
    assert "deleted" in told.err


def test_queue_stats_json_is_the_contract(stored: str, plaita: Run) -> None:
    plaita("start", stored)
    found = plaita("queue", "stats", "--json").json
    assert set(found) == {"streams", "delayed", "parked", "dlq_length", "oldest_pending_s"}
    assert [set(stream) for stream in found["streams"]] == [{"name", "length", "pending", "lag"}] * 2
    assert found["streams"][0]["length"] == 1
    assert plaita("queue", "stats").code == 0


# -- nobody there, help ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["start", "x"],
        ["show", "x"],
        ["wait", "x"],
        ["cancel", "x"],
        ["flow", "list"],
        ["queue", "stats"],
        ["dlq", "list"],
        ["dlq", "purge", "--yes"],
    ],
    ids=" ".join,
)
def test_an_unreachable_server_is_exit_3(plaita: Run, words: list[str]) -> None:
    told = plaita(*words, "--redis-url", "redis://user:S3cr3t-marker@127.0.0.1:1/0", "--json")
    assert (told.code, told.out) == (3, "")
    assert "127.0.0.1:1" in told.err
    assert "S3cr3t" not in told.err


def test_flow_put_of_a_good_flow_without_a_server_is_exit_3(
    hello: dict[str, Any], plaita: Run, flow_file: Callable[..., str]
) -> None:
    assert plaita("flow", "put", flow_file(hello), "--redis-url", "redis://127.0.0.1:1/0").code == 3


def test_an_embedded_folder_that_cannot_be_used_is_exit_2(plaita: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = plaita("list", "--embedded", str(tmp_path / "file"))
    assert told.code == 2
    assert "embedded" in told.err


COMMANDS = [
    [], ["start"], ["show"], ["list"], ["wait"], ["cancel"], ["rm"], ["run"], ["flow"], ["queue"], ["queue", "stats"],
    ["dlq"], ["dlq", "list"], ["dlq", "show"], ["dlq", "purge"],
    ["flow", "put"], ["flow", "list"], ["flow", "show"], ["flow", "validate"], ["flow", "rm"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_help_shows_an_example(plaita: Run, words: list[str]) -> None:
    told = plaita(*words, "--help")
    assert told.code == 0
    assert "Example: plaita" in told.out


@pytest.mark.parametrize(
    "words",
    [[], ["run"], ["check"], ["status"], ["explain"], ["executors"], ["drain"], ["undrain"], ["pause"], ["resume"],
     ["reload"]],
    ids=" ".join,
)  # fmt: skip
def test_every_help_of_the_supervisor_shows_an_example(plaita_supervisor: Run, words: list[str]) -> None:
    told = plaita_supervisor(*words, "--help")
    assert told.code == 0
    assert "Example: plaita-supervisor" in told.out


def test_help_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    script = (
        "import sys\nfrom plaita.cli import main\n"
        "heavy = {'pydantic', 'redis', 'rich', 'yaml', 'plaita.runtime_config', 'plaita.client.blocking'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_on_a_narrow_terminal_no_id_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from plaita.cli.output import console

    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    assert console().width >= 100
