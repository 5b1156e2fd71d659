"""The asking side of the control socket: nobody there, rude servers, and which socket is meant."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plaita.cli import control_client, drain_waiting
from plaita.errors import InputError, PlaitaError, RefusedError, UnreachableError

Answer = Callable[[socket.socket], None]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def serve(short_path: Path) -> Iterator[Callable[[Answer], str]]:
    """A server that treats each connection as the test says."""
    listeners: list[socket.socket] = []

    def start(answer: Answer) -> str:
        path = str(short_path / f"s{len(listeners)}.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        listeners.append(listener)

        def work() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        answer(connection)
                    except OSError:
                        continue

        threading.Thread(target=work, daemon=True).start()
        return path

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def reply(text: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(text)

    return answer


def test_an_answer_comes_without_its_ok(serve: Callable[[Answer], str]) -> None:
    seen: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        for byte in b'{"ok": true, "n": 12345678901234567890123}\n':
            connection.sendall(bytes([byte]))

    assert control_client.ask(serve(answer), "drain", deadline=5) == {"n": 12345678901234567890123}
    assert seen == [b'{"command":"drain","deadline":5}\n']


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b'{"ok": false, "error": "not now"}\n', RefusedError),
        (b'{"ok": false}\n', RefusedError),
        (b"", UnreachableError),
        (b'{"ok": true', UnreachableError),
        (b"hello\n", PlaitaError),
        (b"[]\n", PlaitaError),
        (b'{"ok": "yes"}\n', PlaitaError),
        (b"\xff\n", PlaitaError),
    ],
)
def test_every_other_answer_is_an_error_with_words(
    serve: Callable[[Answer], str], text: bytes, kind: type[PlaitaError]
) -> None:
    with pytest.raises(kind) as caught:
        control_client.ask(serve(reply(text)), "status")
    assert type(caught.value) is kind
    assert str(caught.value)


def test_a_silent_server_is_given_up(serve: Callable[[Answer], str]) -> None:
    released = threading.Event()
    path = serve(lambda connection: released.wait(10) and None)
    with pytest.raises(UnreachableError, match=r"within 0\.2 s"):
        control_client.ask(path, "status", timeout=0.2)
    released.set()


def test_a_server_that_trickles_is_given_up_in_all(serve: Callable[[Answer], str]) -> None:
    def answer(connection: socket.socket) -> None:
        for _ in range(400):
            connection.sendall(b" ")
            time.sleep(0.05)

    with pytest.raises(UnreachableError, match=r"within 0\.3 s"):
        control_client.ask(serve(answer), "status", timeout=0.3)


def test_an_endless_answer_is_cut(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "MAX_ANSWER_BYTES", 100_000)

    def answer(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    with pytest.raises(UnreachableError, match="too long"):
        control_client.ask(serve(answer), "status")


def test_nobody_there(short_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no supervisor is running"):
        control_client.ask(str(short_path / "none.sock"), "status")
    stale = str(short_path / "stale.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(stale)
    listener.close()
    with pytest.raises(UnreachableError, match="nobody listens"):
        control_client.ask(stale, "status")
    (short_path / "file").write_text("")
    with pytest.raises(UnreachableError):
        control_client.ask(str(short_path / "file"), "status")
    with pytest.raises(InputError, match="107"):
        control_client.ask("/tmp/" + "x" * 120, "status")


def test_a_full_queue_of_connections_is_waited_for(short_path: Path) -> None:
    path = str(short_path / "full.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        with pytest.raises(UnreachableError, match=r"within 0\.1 s"):
            control_client.ask(path, "status", timeout=0.1)

        def serve_both() -> None:
            listener.accept()[0].close()
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b'{"ok": true}\n')

        timer = threading.Timer(0.1, serve_both)
        timer.start()
        assert control_client.ask(path, "status", timeout=20) == {}
        timer.join()


# -- which one is meant ---------------------------------------------------------------------------


def test_DECISIONS_37_how_a_socket_is_found(
    serve: Callable[[Answer], str], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = serve(reply(b"")), serve(reply(b""))
    find = control_client.find_socket
    assert find(None, "a", {}) == "/run/plaita-a/supervisor.sock"
    assert find(None, None, {"PLAITA_SOCKET": one}) == one
    assert find(two, None, {"PLAITA_SOCKET": one}) == two
    assert find("~/x.sock", None, {}) == os.path.expanduser("~/x.sock")
    for bad in (("x", "y"), (None, "a/b"), (None, "")):
        with pytest.raises(InputError):
            find(*bad, {})
    stale = str(short_path / "none.sock")
    monkeypatch.setattr(control_client, "candidates", lambda environ: [stale, one])
    assert find(None, None, {}) == one
    monkeypatch.setattr(control_client, "candidates", lambda environ: [stale])
    assert find(None, None, {}) == stale
    named = "/run/plaita-b/supervisor.sock"
    monkeypatch.setattr(control_client, "candidates", lambda environ: [one, two, named])
    monkeypatch.setattr(control_client, "listening", lambda path: True)
    with pytest.raises(InputError) as caught:
        find(None, None, {})
    for words in (f"--socket {one}", f"--socket {two}", "--instance b"):
        assert words in str(caught.value)


def test_DECISIONS_37_several_sockets_are_listed_with_exit_2(
    plaita_supervisor: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = [serve(supervisor_of(STATUS)), serve(supervisor_of(STATUS))]
    monkeypatch.setattr(control_client, "candidates", lambda environ: several)
    monkeypatch.delenv("PLAITA_SOCKET", raising=False)
    for words in (["status"], ["status", "--watch"], ["explain"], ["drain"]):
        told = plaita_supervisor(*words)
        assert (told.code, told.out) == (2, "")
        assert all(path in told.err for path in several)
    assert plaita_supervisor("status", "--socket", several[0]).code == 0


def test_candidates_begin_with_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    found = control_client.candidates({"RUNTIME_DIRECTORY": "/run/x:/run/y", "XDG_RUNTIME_DIR": "/run/user/7"})
    assert found[:2] == ["/run/x/supervisor.sock", "/run/plaita/supervisor.sock"]
    assert found[-1] == "/run/user/7/plaita/supervisor.sock"


# -- the commands on top ----------------------------------------------------------------------------

STATUS: dict[str, Any] = {
    "ok": True,
    "instance_id": "host1",
    "pid": 17,
    "version": "0.1.0",
    "status": "running",
    "serving": True,
    "verdict": "serving",
    "answer": "serving; 1 of 1 executors at work",
    "reasons": [],
    "shut": [],
    "paused": False,
    "uptime_s": 12.5,
    "registry_registered": True,
    "redis": {"connected": True, "server": "unix", "since": None},
    "queue": {"name": "q", "group": "g", "stream_length": 0, "pending": 0, "lag": 0, "dlq_length": 0, "delayed": 0},
    "executors": [{"slot": 0, "pid": 18, "state": "busy", "execution_id": "e1", "flow_id": "f", "node_id": "n",
                   "step_s": 1.5, "steps_done": 3, "rss_mib": 30.1, "restarts": 0}],
    "disk": {"path": "/", "free_gib": 10.0, "min_free_gib": 0.0, "open": True},
    "drain": {"phase": "none", "since": None, "timeout_s": 30},
    "counters": {"finished": 1, "handed_on": 0, "killed": 0},
    "generations": {"config_family": "cf1-a", "config_generation": "cfg1-b", "budget_generation": "bg1-c"},
}  # fmt: skip


def supervisor_of(*answers: dict[str, Any]) -> Answer:
    """Answers in turn; the last one again and again."""
    import json

    left = list(answers)

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        now = left.pop(0) if len(left) > 1 else left[0]
        connection.sendall(json.dumps(now).encode() + b"\n")

    return answer


def test_status_json_is_what_the_supervisor_said(plaita_supervisor: Any, serve: Any) -> None:
    done = plaita_supervisor("status", "--json", "--socket", serve(supervisor_of(STATUS)))
    assert done.code == 0
    assert done.json == {name: value for name, value in STATUS.items() if name != "ok"}


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "not serving", "serving": False, "answer": "NOT taking work: it is paused"},
        {"verdict": "degraded", "serving": True, "answer": "degraded, and taking work; 1 executor is missing"},
        {"verdict": None, "serving": False, "answer": None},
        {"verdict": None, "serving": None},
    ],
    ids=str,
)
def test_status_not_serving_or_degraded_is_exit_1(plaita_supervisor: Any, serve: Any, change: dict[str, Any]) -> None:
    path = serve(supervisor_of({**STATUS, **change}))
    told = plaita_supervisor("status", "--socket", path)
    assert told.code == 1
    assert (change.get("answer") or "NOT taking work") in told.out or "answer" not in change
    assert plaita_supervisor("status", "--socket", path, "--json").code == 1


def test_status_of_an_earlier_version_is_judged_by_what_it_says(plaita_supervisor: Any, serve: Any) -> None:
    old = {name: value for name, value in STATUS.items() if name not in ("verdict", "answer", "reasons")}
    assert plaita_supervisor("status", "--socket", serve(supervisor_of(old))).code == 0


def test_status_for_people(plaita_supervisor: Any, serve: Any) -> None:
    told = plaita_supervisor("status", "--socket", serve(supervisor_of(STATUS)))
    assert told.code == 0
    for word in ("host1", "e1", "cf1-a", "10.0 GiB"):
        assert word in told.out


def test_without_a_supervisor_it_is_exit_3(plaita_supervisor: Any, short_path: Path) -> None:
    for command in ("status", "explain", "executors", "drain", "undrain", "pause", "resume", "reload"):
        told = plaita_supervisor(command, "--socket", str(short_path / "none.sock"), "--json")
        assert (told.code, told.out) == (3, "")
        assert "none.sock" in told.err


def test_watch_and_json_exclude_each_other(plaita_supervisor: Any) -> None:
    assert plaita_supervisor("status", "--watch", "--json").code == 2


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0", "1e9"])
def test_a_time_that_is_none_is_exit_2(plaita_supervisor: Any, serve: Any, seconds: str) -> None:
    path = serve(supervisor_of(STATUS))
    told = plaita_supervisor("status", "--timeout", seconds, "--socket", path)
    assert (told.code, told.out) == (2, "")
    assert "--timeout" in told.err
    if seconds in ("nan", "inf", "-1"):
        assert plaita_supervisor("drain", "--deadline", seconds, "--socket", path).code == 2


def test_a_refusal_is_exit_1(plaita_supervisor: Any, serve: Any) -> None:
    path = serve(supervisor_of({"ok": False, "error": "the supervisor is stopping"}))
    told = plaita_supervisor("undrain", "--socket", path)
    assert (told.code, told.out) == (1, "")
    assert "the supervisor is stopping" in told.err


@pytest.mark.parametrize("command", ["undrain", "resume"])
def test_work_that_is_not_taken_again_is_not_announced(plaita_supervisor: Any, serve: Any, command: str) -> None:
    kept = {"status": "running", "paused": True, "serving": False, "answer": "NOT taking work: it is paused"}
    told = plaita_supervisor(command, "--socket", serve(supervisor_of({"ok": True, **kept})))
    assert told.code == 0
    assert told.out.splitlines()[0] == kept["answer"]
    assert "taking work again" not in told.out


def test_explain_shows_every_gate(plaita_supervisor: Any, serve: Any) -> None:
    gates = [
        {"gate": "redis", "open": True, "since": None, "value": "connected", "limit": "", "waiting": 0, "advice": ""},
        {"gate": "disk", "open": False, "since": "2026-01-01", "value": "1.0", "limit": "5.0", "waiting": 7,
         "advice": "make room"},
    ]  # fmt: skip
    said = {"serving": False, "answer": "NOT taking work: the disk is below its line", "gates": gates}
    path = serve(supervisor_of({"ok": True, **said}))
    told = plaita_supervisor("explain", "--socket", path)
    assert told.code == 0
    assert told.out.splitlines()[0] == said["answer"]
    assert "make room" in told.out
    assert "SHUT" in told.out
    assert plaita_supervisor("explain", "--socket", path, "--json").json == said


def test_executors_json(plaita_supervisor: Any, serve: Any) -> None:
    path = serve(supervisor_of({"ok": True, "executors": STATUS["executors"]}))
    assert plaita_supervisor("executors", "--socket", path, "--json").json == {"executors": STATUS["executors"]}
    assert "busy" in plaita_supervisor("executors", "--socket", path).out


def test_drain_wait_tells_what_is_left_and_ends_with_a_receipt(
    plaita_supervisor: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_waiting, "POLL_SECONDS", 0.01)
    busy = {**STATUS, "status": "draining", "drain": {"phase": "draining", "left": 1, "receipt": None}}
    receipt = {"finished": 1, "handed_on": 2, "killed": 0, "left": 3}
    done = {**busy, "executors": [], "drain": {"phase": "drained", "left": 0, "receipt": receipt}}
    answers = (STATUS, {"ok": True}, busy, busy, done)
    answered = plaita_supervisor("drain", "--wait", "--json", "--socket", serve(supervisor_of(*answers)))
    assert answered.code == 0
    assert answered.json == {"drained": True, **receipt}
    assert "1 left, the oldest: e1 at n" in answered.err
    told = plaita_supervisor("drain", "--wait", "--socket", serve(supervisor_of(*answers)))
    assert "handed on" in told.out


def test_drain_wait_ends_when_the_drain_is_taken_back(
    plaita_supervisor: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_waiting, "POLL_SECONDS", 0.01)
    busy = {**STATUS, "status": "draining", "drain": {"phase": "draining", "left": 1, "since": "2026", "timeout_s": 30}}
    back = {**STATUS, "drain": {"phase": "none", "left": 1}}
    told = plaita_supervisor("drain", "--wait", "--socket", serve(supervisor_of(STATUS, {"ok": True}, busy, back)))
    assert told.code == 1
    assert "1 left, the oldest: e1 at n since 1.5 s; what is left 30 s after the drain began is killed" in told.err
    assert "taken back" in told.err


def test_drain_alone_returns_at_once(plaita_supervisor: Any, serve: Any) -> None:
    path = serve(supervisor_of(STATUS, {"ok": True, "status": "draining"}))
    assert plaita_supervisor("drain", "--json", "--socket", path).json == {"status": "draining"}
    assert plaita_supervisor("drain", "--deadline", "-1", "--socket", path).code == 2


# -- check ------------------------------------------------------------------------------------------


def test_check_prints_what_would_be_used(plaita_supervisor: Any) -> None:
    done = plaita_supervisor("check", "--json", "--executors", "3", "--redis-url", "redis://u:S3cr3t-marker@h/0")
    assert done.code == 0
    assert done.json["settings"]["executors"] == 3
    assert done.json["settings"]["redis_url"] == "redis://u:***@h/0"
    assert done.json["sources"]["executors"] == "flag --executors"
    assert set(done.json["generations"]) == {"config_family", "config_generation", "budget_generation"}
    told = plaita_supervisor("run", "--check", "--executors", "3", "--redis-url", "redis://u:S3cr3t-marker@h/0")
    assert told.code == 0
    assert "flag --executors" in told.out
    assert "S3cr3t" not in told.out + told.err


def test_check_lists_every_fault_with_78(plaita_supervisor: Any) -> None:
    for words in (["check"], ["run", "--check"], ["run"]):
        told = plaita_supervisor(*words, "--executors", "x", "--queue-name", "", "--lease-ttl-seconds", "1")
        assert (told.code, told.out) == (78, "")
        assert len(told.err.splitlines()) == 3


@pytest.mark.parametrize("word", ["--nonsense", "--executors", "stray"])
def test_DECISIONS_31_usage_errors_of_run_are_78(word: str, capsys: Any) -> None:
    from plaita.cli import supervisor

    with pytest.raises(SystemExit) as caught:
        supervisor.main(["run", word])
    assert caught.value.code == 78
    with pytest.raises(SystemExit) as caught:
        supervisor.main(["status", "--nonsense"])
    assert caught.value.code == 2
