"""Where executions and flow definitions are kept, for programs: blocking interfaces, Redis or memory (ledger F10).

Owns: the public records and the words for refusals. Must not: decide what a save may do (``store/scripts`` does), run
node code, take leases.
"""

from __future__ import annotations

from plaita.storage.base import ExecutionStorage, FlowStorage, StoredVersion
from plaita.storage.kinds import create_execution_storage, create_flow_storage
from plaita.storage.memory import MemoryExecutionStorage, MemoryFlowStorage
from plaita.storage.redis import RedisExecutionStorage, RedisFlowStorage
from plaita.storage.state import ExecutionState

__all__ = [
    "ExecutionState",
    "ExecutionStorage",
    "FlowStorage",
    "MemoryExecutionStorage",
    "MemoryFlowStorage",
    "RedisExecutionStorage",
    "RedisFlowStorage",
    "StoredVersion",
    "create_execution_storage",
    "create_flow_storage",
]
