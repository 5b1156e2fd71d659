"""Files that must agree with the code: the configuration page and the systemd units."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from plaita.runtime_config import SupervisorConfig, load_runtime_config
from plaita.runtime_config.print_reference import page

ROOT = Path(__file__).resolve().parents[2]
UNITS = ["plaita-supervisor.service", "plaita-supervisor@.service"]


def test_the_configuration_page_is_printed_from_the_settings() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def unit(name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",), inline_comment_prefixes=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(ROOT / "systemd" / name)
    return dict(parser["Service"])


@pytest.mark.parametrize("name", UNITS)
def test_units_fit_the_daemon(name: str) -> None:
    service = unit(name)
    config: SupervisorConfig = load_runtime_config("worker", environ={})
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "78"
    assert service["KillMode"] == "mixed"
    assert service["OOMPolicy"] == "continue"
    assert int(service["TimeoutStopSec"]) > config.drain_timeout + config.kill_grace + 10
    assert int(service["WatchdogSec"]) > 0
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["ExecStopPost"] == service["ExecStart"].removesuffix("run") + "record-exit"


def test_DECISIONS_37_units_have_the_socket_that_status_looks_for() -> None:
    assert unit("plaita-supervisor.service")["RuntimeDirectory"] == "plaita"
    several = unit("plaita-supervisor@.service")
    assert several["RuntimeDirectory"] == "plaita-%i"
    assert several["Environment"] == "PLAITA_INSTANCE_ID=%H-%i"


def test_the_unit_for_several_differs_in_names_only() -> None:
    one, several = (unit(name) for name in UNITS)
    named = {"RuntimeDirectory", "StateDirectory", "WorkingDirectory", "EnvironmentFile", "Environment"}
    assert {key: value for key, value in one.items() if key not in named} == {
        key: value for key, value in several.items() if key not in named
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_units(name: str, tmp_path: Path) -> None:
    text = (ROOT / "systemd" / name).read_text()
    text = re.sub(r"^(ExecStart|ExecStopPost)=\S+", r"\1=/bin/true", text, flags=re.M)
    file = tmp_path / name.replace("@", "@1")
    file.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60)
    assert str(file.name) not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
