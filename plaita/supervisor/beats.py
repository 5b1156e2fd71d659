"""What a renewal says of a running step (ledger L4): the open timing of its node, whole, built from what is held.

The script writes it only while the row waits for this very step, so a late one changes nothing.
"""

from __future__ import annotations

from plaita import jsontext
from plaita.store.leases import Beat
from plaita.supervisor.held import Held


def beat_of(held: Held) -> Beat | None:
    """None while no node code runs."""
    if not held.running or held.killed:
        return None
    node = held.outline.nodes.get(held.node_id)
    before = held.timings.get(held.node_id)
    again = before is not None and before.open
    started = before.started_at if before is not None and again else held.step_began_at
    timing = {
        "order": held.order,
        "type": node.type if node is not None else "",
        "status": "running",
        "started_at": started,
        "ended_at": None,
        "attempts": held.attempt,
        "visit": held.visit,
        # what a holder after us counts on from: a lost step is counted in the row, a failed one only here
        "failures": before.attempts if before is not None and again else 0,
    }
    return Beat(held.step + 1, held.node_id, jsontext.dumps(timing))
