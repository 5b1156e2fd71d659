"""HTTP calls under the runner that skips time: which wait one is for, and those that come before it (DECISIONS 30).

As ``services.callbacks`` takes them, without a server. What a call must be is asked where that asks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from plaita import ids
from plaita.callback_url import Place, is_token, read_path
from plaita.errors import InputError
from plaita.nodes.execution import DEFAULT_TENANT
from plaita.policy import callbacks
from plaita.policy.callbacks import Reply, Request
from plaita.testing import services, telling
from plaita.testing.trial import Trial, Wait

NODE_TYPE = "http_callback"
KEPT_MS = 7 * 86_400_000


class Calls:
    """The calls that came before their waits. ``trials``: by execution id, as the runner has them."""

    def __init__(self, trials: Mapping[str, Trial]) -> None:
        self._trials = trials
        self._early: dict[Place, tuple[int, Request]] = {}

    def place_of(self, named: str) -> Place | None:
        """Where a call goes that names a node or a URL; None for a URL that leads nowhere. Raises InputError for a node
        that there is not, or that several executions have."""
        path = named.removeprefix(services.BASE_URL)
        if "/" in path:
            found = read_path(path)
            trial = None if found is None else self._trials.get(found[0].execution_id)
            if found is None or trial is None:
                return None
            key = services.callback_key(trial.execution_id).key
            return found[0] if is_token(key, *found) else None
        return self._place_at(named)

    def take(self, place: Place, request: Request, now_ms: int) -> tuple[Reply, dict[str, Any] | None]:
        """The answer; and what the node is told, where the call ends the wait that is under way."""
        unreadable = callbacks.unreadable(request)
        if unreadable is not None:
            return unreadable, None
        trial = self._trials[place.execution_id]
        stage = _stage(trial, place)
        if stage == "over" or place in self._early:
            return callbacks.SECOND, None
        if stage == "waiting":
            assert trial.wait is not None
            return services.answered(trial.wait.config, request, now_ms)
        if request.method not in callbacks.EARLY_METHODS:
            allowed = ", ".join(sorted(callbacks.EARLY_METHODS))
            return callbacks.error(405, "nobody waits for this call yet", Allow=allowed), None
        self._early[place] = (now_ms, request)
        return callbacks.reply(202, {"status": "accepted"}), None

    def early(self, trial: Trial, wait: Wait, now_ms: int) -> dict[str, Any] | None:
        """What the node is told of a call that came before its wait, which begins now; None where none ends it."""
        if wait.service != NODE_TYPE:
            return None
        at_ms, request = self._early.pop(place_of(wait), (0, None))
        if request is None or now_ms - at_ms > KEPT_MS:
            return None
        answer, data = services.answered(wait.config, request, at_ms)
        if data is None:
            trial.warnings.append(f"node {wait.node_id!r}: the call that came early is dropped: {answer.body.decode()}")
        return data

    def _place_at(self, node_id: str) -> Place:
        having = [trial for trial in self._trials.values() if node_id in _nodes(trial)]
        if not having:
            there = sorted({node for trial in self._trials.values() for node in _nodes(trial)})
            hint = telling.instead(node_id, there)
            raise InputError(f"callback: no flow here has an http_callback node {node_id!r}{hint}")
        waiting = [trial for trial in having if trial.wait is not None and trial.wait.node_id == node_id]
        chosen = waiting or [trial for trial in having if not trial.ended] or having
        if len(chosen) > 1:
            urls = ", ".join(trial.execution_id for trial in chosen[:5])
            raise InputError(f"callback: several executions have the node {node_id!r} ({urls}); call the URL of one")
        trial = chosen[0]
        if trial.wait is not None and trial.wait.node_id == node_id:
            return place_of(trial.wait)
        prefix = getattr(trial.flow.plans[node_id].node, "callback_path", None) or ""
        begun = trial.visits(node_id)
        return Place(prefix, DEFAULT_TENANT, trial.execution_id, node_id, begun + (0 if trial.ended else 1))


def event_id(place: Place) -> str:
    """Of a call that ends the wait at a place: each is an event of its own."""
    return f"{callbacks.event_prefix(place)}{ids.new_nonce()}"


def place_of(wait: Wait) -> Place:
    """Where an ``http_callback`` waits."""
    found = read_path(wait.config["callback_config"]["path"])
    assert found is not None
    return found[0]


def _nodes(trial: Trial) -> Iterable[str]:
    return [node_id for node_id, plan in trial.flow.plans.items() if plan.type == NODE_TYPE]


def _stage(trial: Trial, place: Place) -> Literal["early", "waiting", "over"]:
    """As ``policy.callbacks.stage`` tells it from a row."""
    if trial.ended or any(used.startswith(callbacks.event_prefix(place)) for used in trial.used_events):
        return "over"
    begun = trial.visits(place.node_id)
    if begun != place.visit:
        return "over" if begun > place.visit else "early"
    if trial.wait is not None and trial.wait.node_id == place.node_id:
        return "waiting"
    return "early" if trial.in_hand == place.node_id else "over"
