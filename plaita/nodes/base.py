"""What authors of node types subclass: :class:`Node` and :class:`EventNode`.

Owns how a node's code is entered: ``execute`` if the class has one, else ``arun`` on a private event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar

from plaita.flow.model import BaseNode
from plaita.nodes.execution import Execution


class Node(BaseNode):
    """Base of all node types.

    Subclass it, set ``node_type`` (the ``type`` in flows) and ``node_name``, declare pydantic fields (each is accepted
    in snake_case and camelCase), and define ``execute(self, execution)`` or ``async def arun(self, execution)``. What
    it returns must be a JSON value of at most 8 MiB of text; what it raises goes through the node's handlers. A node
    with ``branching = True`` returns the id of its successor: the ``next`` of one of its ``branches``, or its own
    ``next``.
    """

    def execute(self, execution: Execution) -> Any:
        """Run the node and return its result. This default runs ``arun`` to its end."""
        return run_to_end(self.arun(execution))

    async def arun(self, execution: Execution) -> Any:
        """The node as a coroutine, for node types that are asynchronous."""
        raise NotImplementedError(f"node type {self.node_type!r} defines neither execute nor arun")


class EventNode(Node):
    """Base of node types that wait for an event.

    ``execute`` runs when the wait begins. The result it returns stands at ``$NODE.<id>`` while the node waits, then
    ``on_event`` turns the event's data into the final result, ``on_timeout`` and ``on_cancel`` the other ends. Flows
    that use one are refused when they are parsed until this build can suspend.
    """

    is_suspending: ClassVar[bool] = True

    event_type: str | None = None
    event_filter: dict[str, Any] | None = None
    subscription_timeout: Any = None

    def on_event(self, execution: Execution, event_data: Any) -> Any:
        """The node's result once the event came: by default its data, with the status."""
        return {"status": "completed", "event_data": event_data}

    def on_timeout(self, execution: Execution) -> Any:
        """The node's result when no event came in time; by default a timeout error, for the timeout handler."""
        raise TimeoutError(f"no event of type {self.event_type!r} came in time")

    def on_cancel(self, execution: Execution) -> None:
        """Called when the wait is cancelled, to undo what ``execute`` began."""


def is_async(cls: type[Node]) -> bool:
    """Whether the code of a node type is its ``arun``."""
    return cls.execute is Node.execute and cls.arun is not Node.arun


def run_to_end(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on an event loop of its own and return its result; whatever it raises is raised.

    Where a loop already runs in this thread (a flow run inside an async program), the private loop gets a thread of its
    own, and this one waits for it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
            failure.append(error)

    thread = threading.Thread(target=run, name="plaita-arun", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
