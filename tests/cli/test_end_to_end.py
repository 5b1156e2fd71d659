"""The two programs as processes: a flow runs, exit codes are those of the contract, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plaita.cli.control_client import ask
from plaita.errors import UnreachableError

PLAITA = [sys.executable, "-m", "plaita.cli.main"]
SUPERVISOR = [sys.executable, "-m", "plaita.cli.supervisor"]
CEILING_S = 60.0  # a net under conditions that are waited for; nothing is measured by it

NODES = """
import time
from pathlib import Path
from plaita import Node

class Sleeper(Node):
    node_type = "sleeper"
    seconds: float = 1.0
    file: str = ""

    def execute(self, execution):
        print("a node that talks")
        if self.file:
            Path(self.file).write_text(execution.execution_id)
        time.sleep(self.seconds)
        return self.seconds
"""


def sleeping(seconds: float, file: str = "") -> dict[str, Any]:
    return {
        "nodes": [
            {"type": "start", "id": "s", "next": "nap"},
            {"type": "sleeper", "id": "nap", "seconds": seconds, "file": file, "next": "e"},
            {"type": "end", "id": "e", "output": "$NODE.nap"},
        ]
    }


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, for sockets, and TMPDIR of what runs in the test."""
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp") as folder:
        (Path(folder) / "cli_nodes.py").write_text(NODES)
        yield Path(folder)


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLAITA_")}
    (home / "empty.toml").write_text("")
    (home / "tmp").mkdir()
    return kept | {
        "TMPDIR": str(home / "tmp"),
        "PLAITA_CONFIG": str(home / "empty.toml"),
        "PYTHONPATH": str(home),
    }


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(home: Path, environ: dict[str, str]) -> Run:
    def start(*words: str, program: list[str] = PLAITA, **more: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*program, *words], capture_output=True, text=True, env=environ, cwd=home, timeout=CEILING_S, **more
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return start


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + CEILING_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never came: {what}")


def mentions(text: str) -> list[int]:
    """The processes whose command line or environment names ``text``, apart from this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if text.encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


# -- plaita run -----------------------------------------------------------------------------------


def test_run_prints_the_output_and_leaves_nothing(run: Run, home: Path, hello: dict[str, Any]) -> None:
    (home / "hello.json").write_text(json.dumps(hello))
    done = run("run", "hello.json", "--input", '{"name": "world"}')
    assert (done.returncode, json.loads(done.stdout)) == (0, {"text": "hello world"})
    answered = run("run", "hello.json", "--json")
    document = json.loads(answered.stdout)
    assert document["status"] == "completed"
    assert [node["id"] for node in document["nodes"]] == ["begin", "greet", "end"]
    assert list((home / "tmp").iterdir()) == []
    assert mentions(str(home)) == []


def test_run_ends_at_the_first_wait_and_prints_it(run: Run, home: Path) -> None:
    wait = {"type": "event", "id": "w", "eventType": "paid", "next": "e"}
    nodes = [{"type": "start", "id": "s", "next": "w"}, wait, {"type": "end", "id": "e"}]
    (home / "waits.json").write_text(json.dumps({"nodes": nodes}))
    done = run("run", "waits.json")
    assert (done.returncode, done.stdout) == (0, "suspended: node w waits for the event paid\n")
    answered = run("run", "waits.json", "--json")
    document = json.loads(answered.stdout)
    assert (answered.returncode, document["status"]) == (0, "suspended")
    assert document["waiting"]["node_id"] == "w"
    assert mentions(str(home)) == []


def test_run_of_a_flow_that_fails_is_exit_1(run: Run, home: Path) -> None:
    end = {"type": "end", "id": "e", "resultType": "error", "error": {"code": 4001, "message": "no stock"}}
    (home / "bad.json").write_text(json.dumps({"nodes": [{"type": "start", "id": "s", "next": "e"}, end]}))
    done = run("run", "bad.json", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == 4001


def test_run_with_a_plug_in_whose_prints_stay_off_stdout(run: Run, home: Path) -> None:
    (home / "nap.json").write_text(json.dumps(sleeping(0.01)))
    done = run("run", "nap.json", "--preload", "cli_nodes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == 0.01


def test_run_gives_up_with_exit_4(run: Run, home: Path) -> None:
    (home / "nap.json").write_text(json.dumps(sleeping(600)))
    done = run("run", "nap.json", "--preload", "cli_nodes", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (4, "")
    assert list((home / "tmp").iterdir()) == []
    assert mentions(str(home)) == []


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.long), (signal.SIGTERM, 1)]
)
def test_run_interrupted_in_a_step_leaves_nothing(
    home: Path, environ: dict[str, str], number: signal.Signals, code: int
) -> None:
    (home / "nap.json").write_text(json.dumps(sleeping(600, str(home / "begun"))))
    process = subprocess.Popen([*PLAITA, "run", "nap.json", "--preload", "cli_nodes"], env=environ, cwd=home)
    until((home / "begun").exists, "the step began")
    process.send_signal(number)
    assert process.wait(CEILING_S) == code
    assert list((home / "tmp").iterdir()) == []
    assert mentions(str(home)) == []


@pytest.mark.long
def test_run_told_to_stop_many_times_still_cleans_up(home: Path, environ: dict[str, str]) -> None:
    (home / "nap.json").write_text(json.dumps(sleeping(600, str(home / "begun"))))
    command = [*PLAITA, "run", "nap.json", "--preload", "cli_nodes"]
    process = subprocess.Popen(command, env=environ, cwd=home, stderr=subprocess.PIPE, text=True)
    until((home / "begun").exists, "the step began")
    assert process.stderr is not None
    while list((home / "tmp").iterdir()):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
        time.sleep(0.05)
    told = process.stderr.read()
    assert "Traceback" not in told, told
    assert process.wait(CEILING_S) in (1, 130), told
    assert list((home / "tmp").iterdir()) == []
    assert mentions(str(home)) == []


def test_run_beside_a_supervisor_takes_none_of_its_ports(
    home: Path, environ: dict[str, str], hello: dict[str, Any]
) -> None:
    (home / "hello.json").write_text(json.dumps(hello))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"PLAITA_METRICS_PORT": str(taken.getsockname()[1]), "PLAITA_REDIS_URL": "redis://127.0.0.1:1/0"}
        done = subprocess.run(
            [*PLAITA, "run", "hello.json"],
            capture_output=True,
            text=True,
            env=environ | settings,
            cwd=home,
            timeout=CEILING_S,
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["flow", "validate", "hello.json"], ["flow", "validate", "hello.json", "--json"]])
def test_a_full_disk_under_stdout_is_no_traceback(
    home: Path, environ: dict[str, str], hello: dict[str, Any], words: list[str]
) -> None:
    (home / "hello.json").write_text(json.dumps(hello))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PLAITA, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environ, cwd=home, timeout=CEILING_S
        )
    assert done.returncode == 1
    assert done.stderr == "plaita: the output cannot be written: No space left on device\n"


def test_run_killed_outright_takes_its_supervisor_along(home: Path, environ: dict[str, str]) -> None:
    (home / "nap.json").write_text(json.dumps(sleeping(600, str(home / "begun"))))
    process = subprocess.Popen([*PLAITA, "run", "nap.json", "--preload", "cli_nodes"], env=environ, cwd=home)
    until((home / "begun").exists, "the step began")
    process.kill()
    process.wait(CEILING_S)
    until(lambda: not mentions(str(home)), "every process is gone")


# -- plaita-supervisor ------------------------------------------------------------------------------


@pytest.fixture
def daemon(home: Path, environ: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a supervisor on an embedded server and wait until it runs; all are killed at the end."""
    environ |= {
        "PLAITA_EMBEDDED": str(home / "data"),
        "PLAITA_SOCKET": str(home / "s.sock"),
        "PLAITA_PRELOAD": "cli_nodes",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **more: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*SUPERVISOR, "run", "--executors", "1", *words], env=environ, cwd=home, **more)
        started.append(process)

        def running() -> bool:
            assert process.poll() is None, f"it ended with {process.returncode}"
            try:
                return ask(str(home / "s.sock"), "status").get("status") == "running"
            except UnreachableError:
                return False

        until(running, "the supervisor runs")
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def test_a_supervisor_from_start_to_stop(daemon: Any, run: Run, home: Path, hello: dict[str, Any]) -> None:
    process = daemon("--instance-id", "host-1")
    (home / "hello.json").write_text(json.dumps(hello))
    assert run("flow", "put", "hello.json").returncode == 0
    done = run("start", "hello", "--input", '{"name": "x"}', "--wait", "--timeout", "30", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == {"text": "hello x"}

    def serving() -> subprocess.CompletedProcess[str] | None:
        told = run("status", "--json", program=SUPERVISOR)
        return told if told.returncode == 0 else None

    status = json.loads(until(serving, "status says that it serves").stdout)
    assert {
        "instance_id", "pid", "version", "status", "uptime_s", "registry_registered", "redis", "queue", "executors",
        "disk", "drain", "counters", "generations", "verdict", "answer", "stuck", "deaths", "breakers",
    } <= set(status)  # fmt: skip
    assert (status["instance_id"], status["pid"], status["status"]) == ("host-1", process.pid, "running")
    assert {"slot", "pid", "state", "execution_id", "flow_id", "node_id", "step_s", "steps_done", "rss_mib",
            "restarts"} <= set(status["executors"][0])  # fmt: skip
    assert set(status["generations"]) == {"config_family", "config_generation", "budget_generation"}
    for words in (["explain"], ["executors"], ["pause"], ["resume"], ["explain", "--json"]):
        assert run(*words, program=SUPERVISOR).returncode == 0, words
    process.send_signal(signal.SIGTERM)
    assert process.wait(CEILING_S) == 0
    assert run("status", program=SUPERVISOR).returncode == 3
    assert run("wait", json.loads(done.stdout)["execution_id"]).returncode == 0, "the data is still there"


@pytest.mark.long
def test_pause_and_drain_are_degraded_and_undone(daemon: Any, run: Run) -> None:
    daemon()
    assert run("pause", program=SUPERVISOR).returncode == 0
    assert run("status", program=SUPERVISOR).returncode == 1
    assert run("resume", program=SUPERVISOR).returncode == 0
    drained = run("drain", "--wait", "--json", program=SUPERVISOR)
    assert (drained.returncode, json.loads(drained.stdout)["drained"]) == (0, True)
    assert run("status", program=SUPERVISOR).returncode == 1
    assert run("undrain", program=SUPERVISOR).returncode == 0
    until(lambda: run("status", program=SUPERVISOR).returncode == 0, "it serves again")


@pytest.mark.long
def test_cancel_of_a_running_execution(daemon: Any, run: Run, home: Path) -> None:
    daemon()
    (home / "nap.json").write_text(json.dumps(sleeping(600, str(home / "begun"))))
    assert run("flow", "put", "nap.json").returncode == 0
    assert run("start", "nap", "--id", "e1").returncode == 0
    until((home / "begun").exists, "the step began")
    assert json.loads(run("show", "e1", "--json").stdout)["holder"] == os.uname().nodename
    assert run("cancel", "e1", "--reason", "enough").returncode == 0
    ended = run("wait", "e1", "--timeout", "30", "--json")
    assert (ended.returncode, json.loads(ended.stdout)["status"]) == (1, "cancelled")


@pytest.mark.long
def test_DECISIONS_31_a_live_supervisor_is_left_alone(daemon: Any, run: Run, home: Path) -> None:
    first = daemon("--instance-id", "host-1")
    same_socket = run("run", "--instance-id", "host-2", program=SUPERVISOR)
    assert same_socket.returncode == 78
    assert "s.sock" in same_socket.stderr
    same_id = run("run", "--instance-id", "host-1", "--socket", str(home / "t.sock"), program=SUPERVISOR)
    assert same_id.returncode == 78
    assert "host-1" in same_id.stderr
    assert first.poll() is None
    assert ask(str(home / "s.sock"), "status")["pid"] == first.pid


def test_DECISIONS_31_a_stale_socket_is_replaced_and_a_file_is_not(daemon: Any, run: Run, home: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(home / "s.sock"))
    stale.close()
    daemon()
    (home / "notes").write_text("mine")
    told = run("run", "--socket", str(home / "notes"), program=SUPERVISOR)
    assert told.returncode == 78
    assert (home / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--executors", "many"], "--executors"),
        (["--instance-id", ""], "--instance-id"),
        (["--queue-name", ""], "--queue-name"),
        (["--lease-ttl-seconds", "4"], "--lease-ttl-seconds"),
        (["--nonsense"], "--nonsense"),
        (["--embedded", "/dev/null"], "--embedded"),
        (["--embedded", "/proc/plaita"], "embedded"),
        (["--disk-guard-path", "/nowhere"], "--disk-guard-path"),
        (["--socket", "/tmp/" + "x" * 120], "107"),
        (["--socket", "/dev/null/s.sock"], "--socket"),
        (["--config", "/nowhere.toml"], "nowhere.toml"),
        (["--redis-url", "redis://:S3cr3t-marker@h:0/0"], "--redis-url"),
        (["--executor-user", "no-such-user"], "--executor-user"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_DECISIONS_31_what_is_wrong_at_the_start_is_78(run: Run, home: Path, words: list[str], said: str) -> None:
    told = run("run", "--socket", str(home / "s.sock"), *words, program=SUPERVISOR)
    assert told.returncode == 78, told.stderr
    assert said in told.stderr
    assert "S3cr3t" not in told.stderr
    assert told.stdout == ""


@pytest.mark.parametrize(
    "closed", [(0, 1, 2), *(pytest.param((number,), marks=pytest.mark.long) for number in (0, 1, 2))], ids=str
)
def test_standard_descriptors_that_are_closed(
    daemon: Any, run: Run, home: Path, hello: dict[str, Any], closed: tuple[int, ...]
) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    process = daemon(preexec_fn=close)
    for number in closed:
        assert os.path.exists(f"/proc/{process.pid}/fd/{number}")
        assert not os.readlink(f"/proc/{process.pid}/fd/{number}").startswith("socket:")
    (home / "hello.json").write_text(json.dumps(hello))
    assert run("flow", "put", "hello.json").returncode == 0
    assert run("start", "hello", "--wait", "--timeout", "30").returncode == 0


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_commands_with_closed_descriptors_do_not_fall(
    home: Path, environ: dict[str, str], hello: dict[str, Any], closed: tuple[int, ...]
) -> None:
    (home / "hello.json").write_text(json.dumps(hello))

    def close() -> None:
        for number in closed:
            os.close(number)

    command = [*PLAITA, "flow", "validate", "hello.json", "--json"]
    process = subprocess.Popen(
        command, env=environ, cwd=home, preexec_fn=close, stdout=subprocess.PIPE if 1 not in closed else None
    )
    out, _ = process.communicate(timeout=CEILING_S)
    assert process.returncode == 0
    if 1 not in closed:
        assert json.loads(out)["ok"] is True


def test_a_reader_that_goes_away_is_no_traceback(home: Path, environ: dict[str, str], hello: dict[str, Any]) -> None:
    (home / "hello.json").write_text(json.dumps(hello))
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*PLAITA, "flow", "validate", "hello.json", "--json"],
        env=environ,
        cwd=home,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    _, err = process.communicate(timeout=CEILING_S)
    assert process.returncode == 1
    assert b"Traceback" not in err


def test_a_terminal_that_cannot_show_the_text_gets_escapes(run: Run, home: Path, environ: dict[str, str]) -> None:
    environ |= {"PYTHONIOENCODING": "ascii"}
    (home / "f.json").write_text('{"nodes": [{"type": "start", "id": "s", "next": "终"}]}', encoding="utf-8")
    told = run("flow", "validate", "f.json")
    assert told.returncode == 2
    assert "\\u7ec8" in told.stderr
