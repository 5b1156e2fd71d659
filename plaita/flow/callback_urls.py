"""The URLs of an execution's ``http_callback`` nodes, for nodes that come before them (DECISIONS 30). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plaita.callback_url import NO_BASE, NO_SECRET, CallbackKey, Place
from plaita.flow.definition import NodePlan
from plaita.flow.graph import canonical_id
from plaita.flow.nearest import shown

NODE_TYPE = "http_callback"


class CallbackUrls:
    """What ``$F.callback_url`` asks in a step. ``key``: None where the platform has no secret. ``visit_of`` tells of a
    node's id which of its visits is the next to wait, from 1."""

    __slots__ = ("_execution_id", "_key", "_plans", "_tenant_id", "_visit_of")

    def __init__(
        self,
        plans: Mapping[str, NodePlan],
        key: CallbackKey | None,
        tenant_id: str,
        execution_id: str,
        visit_of: Callable[[str], int],
    ) -> None:
        self._plans = plans
        self._key = key
        self._tenant_id = tenant_id
        self._execution_id = execution_id
        self._visit_of = visit_of

    def __call__(self, node: str) -> str:
        """The URL that ends the next wait of a node. Raises ValueError for a node that has none, or where none can be
        made."""
        node_id = canonical_id(node)
        plan = self._plans.get(node_id)
        if plan is None or plan.type != NODE_TYPE:
            raise ValueError(not_a_callback(node, None if plan is None else plan.type))
        if self._key is None:
            raise ValueError(NO_SECRET)
        if not self._key.base:
            raise ValueError(NO_BASE)
        prefix = getattr(plan.node, "callback_path", None) or ""
        return self._key.url(Place(prefix, self._tenant_id, self._execution_id, node_id, self._visit_of(node_id)))


def not_a_callback(node: str, node_type: str | None) -> str:
    """Why a node has no URL. ``node_type``: None where no node has that id."""
    if node_type is None:
        return f"no node has the id {shown(node)}"
    return f"node {shown(node)} is of type {shown(node_type)}; only {NODE_TYPE} nodes have a URL"
