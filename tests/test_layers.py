"""What import-linter cannot say: where XACK may stand (DESIGN "Layers")."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "plaita"


def test_xack_stands_beside_the_streams_and_in_their_scripts() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".lua") and "XACK" in path.read_text("utf-8")
    }
    outside = {name for name in found if not name.startswith("store/scripts/")} - {
        "store/carriers.py",
        "store/events.py",
    }
    outside -= {"store/permissions.py"}  # asks whether a user may, and acks nothing
    assert found
    assert not outside


def test_no_module_swallows_every_exception() -> None:
    for path in PACKAGE.rglob("*.py"):
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines[:-1]):
            if line.strip().startswith("except Exception") or line.strip() == "except:":
                assert lines[number + 1].strip() != "pass", f"{path}:{number + 1}"


def test_only_the_log_of_events_is_asked_on_the_lane_where_its_read_waits() -> None:
    """What stands behind that read is late by as long as it waits, a second: a service's calls take ``events.WORK``."""
    allowed = {"call.py", "events.py", "keys.py"}
    asking = {file.name for file in (PACKAGE / "store").glob("*.py") if '"events"' in file.read_text("utf-8")}
    assert asking <= allowed
