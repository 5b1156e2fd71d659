"""Prints ``docs/state-machines.md`` from the tables, so that the page cannot differ from the code."""

from __future__ import annotations

from plaita.policy import lifecycle, slot

_HEAD = """# State machines

This page is printed from `plaita/policy/lifecycle.py` and `plaita/policy/slot.py` by `make docs`; a test compares it
with the tables. Rows are states, then one line an event: the next state and the actions, in order. An event that
is not listed under a state changes nothing there.
"""


def _lifecycle_lines() -> list[str]:
    lines = ["## Supervisor", ""]
    lines.append(
        "What it is (state) and what is wanted of it (wish: " + ", ".join(w.value for w in lifecycle.Wish) + ") are"
    )
    lines.append("kept apart. Where the wish decides, there is a line for each.")
    for state in lifecycle.State:
        lines += [
            "",
            f"### {state.value}",
            "",
            "| event | wish | next state | new wish | actions |",
            "|---|---|---|---|---|",
        ]
        for event in lifecycle.Event:
            cell = lifecycle.TABLE[(state, event)]
            steps = [("any", cell)] if isinstance(cell, lifecycle.Step) else [(w.value, s) for w, s in cell.items()]
            for wish, step in steps:
                if step.state is state and step.wish is None and not step.actions:
                    continue
                new_wish = step.wish.value if step.wish else "unchanged"
                actions = "; ".join(a.value for a in step.actions) or "none"
                lines.append(f"| {event.value} | {wish} | {step.state.value} | {new_wish} | {actions} |")
    return lines


def _slot_lines() -> list[str]:
    lines = ["## Executor slot"]
    for state in slot.Slot:
        lines += ["", f"### {state.value}", "", "| event | next state | actions |", "|---|---|---|"]
        for event in slot.SlotEvent:
            following, actions = slot.TABLE[(state, event)]
            if following is state and not actions:
                continue
            lines.append(f"| {event.value} | {following.value} | {'; '.join(a.value for a in actions) or 'none'} |")
    return lines


def render() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_lifecycle_lines(), "", *_slot_lines()]) + "\n"


if __name__ == "__main__":
    print(render(), end="")
