from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "supervisor")]

from plaita.testing.fixtures import plaita_server_process  # noqa: E402, F401
