"""A schedule's record: what a person put there, as JSON (ledger E5)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plaita import jsontext
from plaita.errors import InputError
from plaita.policy.carrier import start_payload
from plaita.policy.schedule import Calendar, Misfire, calendar

Moment = Annotated[int, Field(ge=0, lt=253_402_300_800_000)]  # epoch ms, to the end of the year 9999


class Schedule(BaseModel):
    """``params``: the input of its executions. ``version`` None: the latest at that time. Times are epoch ms.
    ``queue``: whose supervisors fire it, '' where an earlier release did not say."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    schedule_id: str
    name: str = ""
    flow_id: str
    version: str | None = None
    cron: str
    tz: str = "UTC"
    misfire: Misfire = "once"
    params: Any = None
    enabled: bool = True
    created_at: Moment = 0
    updated_at: Moment = 0
    created_by: str = ""
    tenant_id: str = "default"
    queue: str = ""

    def encoded(self) -> bytes:
        """The JSON text that is stored. Raises JSONValueError naming the path of what JSON cannot carry."""
        return jsontext.dumps(self.model_dump(), "schedule")

    @property
    def plan(self) -> Calendar:
        """Its calendar, as it was judged when it was put."""
        return Calendar(self.cron, self.tz)


class BadSchedule(ValueError):
    """A record that no plaita of this release wrote: what is wrong with it."""


def read_schedule(raw: bytes, schedule_id: str, now_ms: int) -> Schedule:
    """A stored record, judged whole: also its cron expression and zone. Raises BadSchedule."""
    try:
        found = Schedule.model_validate(jsontext.loads(raw))
        if found.schedule_id != schedule_id:
            raise BadSchedule(f"schedule_id: it says {found.schedule_id!r}")
        calendar(found.cron, found.tz, now_ms)
    except jsontext.JSONTextError as error:
        raise BadSchedule(f"no JSON: {error}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"]) or "(whole)"
        raise BadSchedule(f"{place}: {fault['msg']}") from None
    except InputError as error:
        raise BadSchedule(str(error)) from None
    return found


def scheduled_start(
    schedule: Schedule, kind: Literal["cron", "manual"], execution_id: str, tenant_id: str, timestamp: str
) -> bytes:
    """The payload of a start that a schedule makes (REFERENCE 5.10); ``kind`` says what set it off."""
    return start_payload(
        execution_id=execution_id,
        flow_id=schedule.flow_id,
        version=schedule.version or "latest",
        tenant_id=tenant_id,
        timestamp=timestamp,
        trigger={"kind": kind, "schedule_id": schedule.schedule_id, "schedule_name": schedule.name},
    )
