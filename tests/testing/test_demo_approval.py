"""``make demo-approval`` does what it says: by the commands alone, on the embedded server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "approval" / "run.py"


@pytest.mark.long
def test_the_demo_of_approval_delay_and_event() -> None:
    done = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("$ plaita approval decide", "$ plaita event publish bank.paid", "each wait ended once"):
        assert said in done.stdout
