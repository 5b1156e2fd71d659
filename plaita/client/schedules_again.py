"""The part of ``reindex`` that gives schedules the due times that a server lost (ledger D4, E5)."""

from __future__ import annotations

from plaita.client.operations import Operation, ask
from plaita.errors import RefusedError
from plaita.policy.schedule_again import due_again, lacks_due_time
from plaita.store import schedules
from plaita.store.keys import Keys


def put_schedules_back(keys: Keys) -> Operation[int]:
    """Those of the tenant that should have a due time on this queue and have none get one; how many. What passed since
    they last ran is fired as after an outage. Also those that were put aside and can be read now."""
    done, cursor = 0, "0"
    while True:
        page = yield from ask(schedules.without_due_time(keys, cursor))
        for stored in page.schedules:
            schedule = lacks_due_time(stored.record, stored.schedule_id, keys.queue, page.now, asked=True)
            if schedule is None:
                continue
            history = yield from ask(schedules.history(keys, stored.schedule_id))
            due = due_again(schedule, history, page.now, asked=True)
            if due is None:
                continue
            put = schedules.put(keys, stored.schedule_id, stored.record, due, stored, flow_id=schedule.flow_id)
            try:
                yield from ask(put)
            except RefusedError as error:
                if error.reason != "changed":  # by somebody who gave it one, or took it away
                    raise
            else:
                done += 1
        cursor = page.cursor
        if cursor == "0":
            return done
