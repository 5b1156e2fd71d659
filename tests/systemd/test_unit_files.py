"""The files in systemd/: systemd takes them without a word, and what they say agrees with the code (ledger O6)."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from unit_file import DROP_INS, FOLDER, INSTANCED, PLAIN, Unit

from plaita.errors import ConfigError
from plaita.executor.main import OOM_SCORE_ADJ
from plaita.policy.process_end import NORMAL_EXITS
from plaita.runtime_config import SupervisorConfig, load_runtime_config, settings_of
from plaita.runtime_config.settings import every_setting
from plaita.runtime_config.sources import CREDENTIAL_PREFIX
from plaita.supervisor.life import EXIT_BUG, EXIT_CLEAN, EXIT_CONFIGURATION, EXIT_KILLED_WORK
from plaita.unix.limits import problems

UNITS = [PLAIN, INSTANCED]
# Exposure by `systemd-analyze security`, 0 to 10, as of systemd 252. It may fall; a line that raises it needs a reason.
EXPOSURE = {"": 3.8, "executor-user.conf": 5.2, "memory.conf": 3.8, "strict.conf": 1.9}


def analyze(*words: str) -> str:
    """What systemd-analyze prints, both streams; it must succeed."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: nobody looks at the units here")
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def with_drop_in(drop_in: Path | None, folder: Path) -> Path:
    """A copy of the unit with one drop-in beside it."""
    copy = folder / PLAIN.name
    shutil.copy(PLAIN, copy)
    if drop_in is not None:
        beside = folder / f"{PLAIN.name}.d"
        beside.mkdir()
        shutil.copy(drop_in, beside)
    return copy


def test_O6_the_units_verify_clean() -> None:
    assert analyze("verify", *map(str, UNITS)) == ""


@pytest.mark.parametrize("drop_in", [None, *DROP_INS], ids=lambda path: path.name if path else "no drop-in")
def test_O6_each_drop_in_verifies_clean_and_the_exposure_does_not_grow(drop_in: Path | None, tmp_path: Path) -> None:
    unit = str(with_drop_in(drop_in, tmp_path))
    assert analyze("verify", unit) == ""
    found = re.search(r"Overall exposure level for \S+ ([0-9.]+)", analyze("security", "--offline=true", unit))
    assert found is not None
    assert float(found[1]) <= EXPOSURE[drop_in.name if drop_in else ""]


def test_O6_every_drop_in_is_looked_at() -> None:
    assert {path.name for path in DROP_INS} == set(EXPOSURE) - {""}
    for path in DROP_INS:
        assert f"drop-ins/{path.name} /etc/systemd/system/" in path.read_text("utf-8")


def test_O6_the_two_units_differ_only_where_several_on_a_host_must() -> None:
    plain, several = Unit(PLAIN).lines, Unit(INSTANCED).lines
    own = [line for line in several if "%i" in line[2]]
    assert [name for _, name, _ in own] == [
        "Description",
        "Environment",
        "EnvironmentFile",
        "SyslogIdentifier",
        "RuntimeDirectory",
        "StateDirectory",
        "WorkingDirectory",
    ]
    replaced = {name for _, name, _ in own} - {"Environment", "EnvironmentFile"}
    assert [line for line in several if line not in own] == [line for line in plain if line[1] not in replaced]


# -- agreeing with the code -----------------------------------------------------------------------------


@pytest.fixture(params=UNITS, ids=lambda path: path.name)
def unit(request: pytest.FixtureRequest) -> Unit:
    return Unit(request.param, instance="1")


def test_O6_the_words_of_the_requirement(unit: Unit) -> None:
    assert unit.one("Type") == "notify"
    assert unit.one("NotifyAccess") == "main"
    assert unit.one("KillMode") == "mixed"
    assert unit.one("OOMPolicy") == "continue"


def test_O6_only_wrong_settings_keep_it_down(unit: Unit) -> None:
    assert unit.one("Restart") == "always"
    assert unit.one("RestartPreventExitStatus").split() == [str(EXIT_CONFIGURATION)]
    assert {EXIT_CLEAN, EXIT_KILLED_WORK, EXIT_CONFIGURATION} == NORMAL_EXITS
    assert EXIT_BUG not in NORMAL_EXITS
    # KNOWN-TROUBLE 32: a start limit leaves a host down that came up before what it needs.
    assert unit.one("StartLimitIntervalSec") == "0"
    assert unit.seconds("RestartSec") >= 1


def test_O6_times_fit_the_defaults(unit: Unit) -> None:
    config = load_runtime_config("worker", environ={}, file="/dev/null")
    assert unit.seconds("TimeoutStopSec") > config.drain_timeout + config.kill_grace + 10
    assert unit.seconds("TimeoutStartSec") > config.template_deadline
    # A loop that stands must be killed by the dead-man switch before systemd has to; a lease outlives both.
    assert 0 < unit.seconds("WatchdogSec") < config.lease_ttl_seconds


def test_DECISIONS_37_the_socket_is_where_status_looks_for_it() -> None:
    assert Unit(PLAIN).one("RuntimeDirectory") == "plaita"
    assert Unit(INSTANCED).one("RuntimeDirectory") == "plaita-%i"
    assert "PLAITA_INSTANCE_ID=%H-%i" in Unit(INSTANCED).all("Environment")  # DECISIONS 1


def test_O6_limits_are_enough_for_the_largest_pool(unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {resource.RLIMIT_NOFILE: unit.seconds("LimitNOFILE"), resource.RLIMIT_NPROC: unit.seconds("TasksMax")}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (given[kind], given[kind]))
    assert problems(1024) == []
    assert len(problems(100_000)) == 2


def test_O6_executors_are_killed_for_memory_before_the_supervisor(unit: Unit) -> None:
    assert unit.seconds("OOMScoreAdjust") < 0 < OOM_SCORE_ADJ


def test_O6_every_secret_may_come_as_a_credential_and_none_must(unit: Unit) -> None:
    names = unit.all("LoadCredential")
    assert all(":" not in name for name in names)  # with a path, a missing file would fail the unit
    secrets = {name for name, setting in every_setting().items() if setting.secret}
    assert set(names) == {f"{CREDENTIAL_PREFIX}{name}" for name in secrets}


def test_O6_node_code_keeps_what_sandboxes_and_devices_need(unit: Unit) -> None:
    named = {name for _, name, _ in unit.lines}
    assert not named & {"RestrictNamespaces", "MemoryDenyWriteExecute", "PrivateTmp", "PrivateDevices", "ProtectClock"}
    assert "ProtectProc" not in named  # a namesake of another user would be taken for dead
    denied = unit.one("SystemCallFilter")
    assert denied.startswith("~")
    assert not set(denied[1:].split()) & {"@mount", "@privileged", "@resources", "@debug", "@process"}


def test_O6_the_path_of_the_installation_stands_once(unit: Unit) -> None:
    assert sum("/opt/plaita" in value for _, _, value in unit.lines) == 1
    commands = [unit.one(name) for name in ("ExecStart", "ExecStopPost")]
    assert commands == ["/usr/bin/env plaita-supervisor run", "-/usr/bin/env plaita-supervisor record-exit"]
    for search in (unit.all("Environment")[0].removeprefix("PATH=").split(":"),):
        assert search[0] == "/opt/plaita/bin"
        assert {"/usr/bin", "/bin"} <= set(search)


# -- the environment example ------------------------------------------------------------------------------

EXAMPLE = FOLDER / "environment.example"
LINES = EXAMPLE.read_text("utf-8").splitlines()
OFFERED = [line[1:] for line in LINES if line.startswith("#PLAITA_")]


def test_O6_the_example_changes_nothing_and_says_why_for_each_line() -> None:
    assert all(line == "" or line.startswith("#") for line in LINES)
    for number, line in enumerate(LINES):
        if line.startswith("#PLAITA_"):
            assert LINES[number - 1].startswith(("# ", "#PLAITA_")), line
    assert len(OFFERED) == len({line.split("=")[0] for line in OFFERED})


@pytest.mark.parametrize("line", OFFERED)
def test_O6_each_line_of_the_example_is_right(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, value = line.partition("=")
    if value.startswith("/"):
        value = str(tmp_path)
    try:
        config = load_runtime_config("worker", environ={name: value}, file="/dev/null")
    except ConfigError as error:
        pytest.fail(f"{line}: {error.faults}")
    assert config.warnings == ()
    [field] = config.sources
    assert not settings_of(SupervisorConfig)[field].secret or "@" not in value


def test_O6_every_variable_that_the_files_name_exists() -> None:
    known = {variable for setting in every_setting().values() for variable in setting.environment}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file():
            named = set(re.findall(r"PLAITA_[A-Z_]+", path.read_text("utf-8")))
            assert named <= known, path


# -- users and folders ---------------------------------------------------------------------------------------


def test_O6_sysusers_make_the_users_of_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-sysusers") is None:
        pytest.skip("systemd-sysusers is not installed")
    (tmp_path / "etc").mkdir()
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", str(FOLDER / "plaita.sysusers.conf")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    users = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    assert users["plaita"][5] == f"/var/lib/{Unit(PLAIN).one('StateDirectory')}"
    for path in UNITS:
        assert {Unit(path).one("User"), Unit(path).one("Group")} == {"plaita"}
    executor = Unit(PLAIN, FOLDER / "drop-ins/executor-user.conf").all("Environment")[-1]
    assert executor.removeprefix("PLAITA_EXECUTOR_USER=") in users
    groups = [line.split(":") for line in (tmp_path / "etc/group").read_text().splitlines()]
    assert all(members == "" for _, _, _, members in groups)  # node code is in no group that may ask the supervisor


def test_O6_tmpfiles_make_the_folders_that_the_units_read(tmp_path: Path) -> None:
    if shutil.which("systemd-tmpfiles") is None or shutil.which("systemd-sysusers") is None:
        pytest.skip("systemd-tmpfiles or systemd-sysusers is not installed")
    (tmp_path / "etc").mkdir()
    for program, *words, file in (
        ("systemd-sysusers", "plaita.sysusers.conf"),
        ("systemd-tmpfiles", "--create", "plaita.tmpfiles.conf"),
    ):
        command = [program, *words, f"--root={tmp_path}", str(FOLDER / file)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert program == "systemd-sysusers" or done.stderr == ""
    assert (tmp_path / "etc/plaita").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "etc/credstore").stat().st_mode & 0o777 == 0o700


def test_O6_temporary_folders_of_plaita_are_not_aged() -> None:
    from plaita.supervisor.temporary import PREFIX

    kept = re.findall(r"^x (\S+)$", (FOLDER / "plaita.tmpfiles.conf").read_text("utf-8"), re.MULTILINE)
    assert "/tmp/plaita-*" in kept
    assert PREFIX.startswith("plaita-")
