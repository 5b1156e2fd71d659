"""The node types this build brings along."""

from __future__ import annotations

from plaita.nodes.approval import ApprovalNode
from plaita.nodes.assignment import AssignmentNode
from plaita.nodes.base import Node
from plaita.nodes.case import CaseNode
from plaita.nodes.delay import DelayNode
from plaita.nodes.end import EndNode
from plaita.nodes.event import EventWaitNode
from plaita.nodes.http_callback import HttpCallbackNode
from plaita.nodes.if_node import IfNode
from plaita.nodes.mock import MockNode
from plaita.nodes.redis_queue import RedisQueueNode
from plaita.nodes.start import StartNode
from plaita.nodes.switch import SwitchNode

BUILT_IN: tuple[type[Node], ...] = (
    StartNode,
    EndNode,
    AssignmentNode,
    IfNode,
    SwitchNode,
    CaseNode,
    MockNode,
    EventWaitNode,
    DelayNode,
    ApprovalNode,
    RedisQueueNode,
    HttpCallbackNode,
)

PURE_NODES: frozenset[type[Node]] = frozenset(BUILT_IN)
"""Node types whose code only evaluates expressions: exactly these classes, not what somebody derives from them."""
