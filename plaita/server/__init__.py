"""Library mode: a program of your own that runs executions itself, without a supervisor: ``FlowWorker``.

Owns: the loop in a thread, steps in threads of this process, the direct calls. Must not: decide anything about a
carrier, a lease or a retry; that is the supervisor's dispatch and ``policy``, which both use.
"""

from __future__ import annotations

from plaita.server.flow_worker import FlowWorker

__all__ = ["FlowWorker"]
