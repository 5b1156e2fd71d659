from __future__ import annotations

from pathlib import Path

import pytest

from plaita.unix.oom import OomKills, counters


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ("0::/system.slice/plaita.service\n", ["/r/system.slice/plaita.service/memory.events"]),
        ("0::/\n", ["/r/memory.events"]),
        ("4:memory:/a\n3:cpu,cpuacct:/b\n0::/\n", ["/r/memory/a/memory.oom_control", "/r/memory.events"]),
        ("5:cpuset,memory:/a:b\n", ["/r/memory/a:b/memory.oom_control"]),
        ("nonsense\n", ["/r/memory.events"]),
        ("", []),
    ],
)
def test_where_the_kernel_counts(tmp_path: Path, groups: str, wanted: list[str]) -> None:
    (tmp_path / "cgroup").write_text(groups)
    assert counters(str(tmp_path / "cgroup"), "/r") == [*wanted, "/proc/vmstat"]
    assert counters(str(tmp_path / "none"), "/r") == ["/proc/vmstat"]


def test_KT55_it_tells_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom 9\noom_kill 3\noom_group_kill 0\n")
    kills = OomKills([str(tmp_path / "none"), str(file)])
    assert not kills.grew(), "what was before is not ours"
    file.write_text("oom 9\noom_kill 4\n")
    assert kills.grew()
    assert not kills.grew()
    file.unlink()
    assert not kills.grew()
    assert not OomKills([str(file)]).grew()


def test_this_machine_counts() -> None:
    assert not OomKills().grew()
