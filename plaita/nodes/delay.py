"""``delay``: waits for a time and goes on (FLOW-FORMAT 2.3). A timer in Redis: no service, no executor is held."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

from pydantic import field_validator

from plaita.errors import NodeOutputError
from plaita.flow.durations import LONGEST_MS, parse_seconds, parse_timeout
from plaita.flow.expressions import Scope
from plaita.flow.model import Preparation
from plaita.flow.nearest import Nearest, shown
from plaita.flow.waiting import Subscription, earlier
from plaita.nodes.base import EventNode, with_service
from plaita.nodes.execution import Execution

UNITS = {"seconds": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
DEFAULT_SECONDS = 60
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)


class DelayNode(EventNode):
    """``delay_seconds``: how many ``delay_unit`` to wait, a number or an expression (null counts as 60 seconds, with a
    warning). When the time has come, the result is the pending object with ``status: "completed"`` and ``event_data``.

    A ``timeout`` or ``subscription_timeout`` that is shorter ends it as any other wait: a timeout. An event of the type
    ``event_type`` for this execution ends it earlier.
    """

    node_type: ClassVar[str] = "delay"
    node_name: ClassVar[str] = "Delay"

    event_type: str | None = "delay_trigger"
    delay_seconds: Any = None
    delay_unit: str = "seconds"

    @field_validator("delay_unit")
    @classmethod
    def _known_unit(cls, value: str) -> str:
        unit = value.lower()
        unit = unit if unit.endswith("s") else unit + "s"
        if unit not in UNITS:
            raise ValueError(f"unknown unit {shown(value)}{Nearest(UNITS).hint(value)}")
        return unit

    def prepare(self, preparation: Preparation) -> None:
        """Compile ``delay_seconds``; a number is judged at once."""
        super().prepare(preparation)
        raw = self.delay_seconds
        self._compiled[id(raw)] = (raw, preparation.value(raw, "delay_seconds"))
        if raw is None:
            preparation.problem("delay_seconds", "how long to wait is missing: a number or an expression")
        else:
            self._judge_written(preparation, {"delay_seconds": self._ms})

    def execute(self, execution: Execution) -> Any:
        """Begin the wait."""
        value = self._evaluated(self.delay_seconds, execution.scope)
        delay_ms = self._ms(value)
        pending = super().execute(execution)
        return with_service(
            self,
            pending,
            execution,
            delay_ms=delay_ms,
            trigger_timestamp=execution.scope.now_ms + delay_ms,
        )

    def on_timeout(self, execution: Execution) -> Any:
        """The time has come; a timeout where the node's own limit was shorter."""
        config = execution.pending["service_config"]
        limit = self._limit_ms()
        if limit is not None and limit < config["delay_ms"]:
            raise TimeoutError(f"the limit of {limit} ms is shorter than the delay of {config['delay_ms']} ms")
        told = {
            "trigger_type": "delay_trigger",
            "node_id": execution.node_id,
            "execution_id": execution.execution_id,
            "flow_id": execution.flow_id,
            "tenant_id": execution.tenant_id,
            "delay_ms": config["delay_ms"],
            "trigger_timestamp": config["trigger_timestamp"],
            "timestamp": execution.scope.now_ms,
            "success": True,
        }
        return {**execution.pending, "status": "completed", "event_data": told}

    def _subscription(self, pending: Any, scope: Scope) -> Subscription:
        wanted = super()._subscription(pending, scope)
        delay_ms = pending["service_config"]["delay_ms"]
        return replace(
            wanted,
            timeout_ms=earlier(delay_ms, wanted.timeout_ms),
            warnings=(*wanted.warnings, *self._warnings_of(scope)),
        )

    def _warnings_of(self, scope: Scope) -> tuple[str, ...]:
        if self._evaluated(self.delay_seconds, scope) is None:
            return (f"delay_seconds {shown(self.delay_seconds)} gives nothing: {DEFAULT_SECONDS} seconds are waited",)
        return ()

    def _limit_ms(self) -> int | None:
        return earlier(parse_seconds(self.subscription_timeout), parse_timeout(self.timeout))

    def _ms(self, value: Any) -> int:
        """Whole milliseconds, rounded up. Raises NodeOutputError for what is no time."""
        if value is None:
            return DEFAULT_SECONDS * 1000
        number = value
        if isinstance(value, str) and _NUMBER.fullmatch(value) is not None:
            number = float(value) if set(value) & set(".eE") else int(value)
        if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
            raise NodeOutputError(f"delay_seconds gives {shown(value)}: a number is wanted")
        if number < 0:
            raise NodeOutputError(f"delay_seconds gives {shown(value)}: it cannot be negative")
        # Compared first: what is beyond every limit need not be exact, and may be beyond every number.
        if number > LONGEST_MS or Fraction(number) * UNITS[self.delay_unit] > LONGEST_MS:
            raise NodeOutputError(f"delay_seconds gives {shown(value)}: longer than a hundred years")
        return math.ceil(Fraction(str(number)) * UNITS[self.delay_unit])
