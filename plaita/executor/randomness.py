"""Random state of an executor: not the template's, or all siblings would draw the same (trouble 53)."""

from __future__ import annotations

import os
import random
import sys


def reseed() -> None:
    """Fresh seeds, from the system's source, for the generators of ``random``, ``numpy.random`` and ``uuid``.

    Generators that a plug-in made for itself on import cannot be known; ``os.register_at_fork`` is there for those.
    """
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "big"))
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        # uuid1: libuuid keeps clock and sequence in memory, which the fork has copied. Python's own way draws the
        # sequence each time; a random node (RFC 9562 allows it, with the multicast bit) keeps siblings apart for good.
        state = vars(uuid)
        state["_generate_time_safe"] = None
        state["_last_timestamp"] = None
        state["_node"] = int.from_bytes(os.urandom(6), "big") | (1 << 40)
