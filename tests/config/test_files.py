"""The configuration page must agree with the code; the files of systemd/ are looked at in tests/systemd."""

from __future__ import annotations

from pathlib import Path

from plaita.runtime_config.print_reference import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_configuration_page_is_printed_from_the_settings() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == page(), "run `make docs`"
