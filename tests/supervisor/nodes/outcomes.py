"""Nodes that fail in the ways node code fails, by the name in ``how``."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from plaita import Node
from plaita.errors import FlowCancelledException, FlowResultError, NodeException, OutputValidationError


def _raise(error: BaseException) -> Any:
    raise error


def _caused(inner: BaseException, depth: int = 1) -> Any:
    """Raise ``inner`` under so many others."""
    try:
        raise inner if depth == 1 else RuntimeError("in between") from inner
    except BaseException as error:
        raise RuntimeError("outer") from error


WAYS: dict[str, Any] = {
    "value_error": lambda: _raise(ValueError("bad amount")),
    "key_error": lambda: _raise(KeyError("lost")),
    "business": lambda: _raise(NodeException(4711, "no stock")),
    "text_code": lambda: _raise(NodeException("E-7", "no stock")),
    "caused": lambda: _caused(NodeException(1001, "not built")),
    "caused by a value error": lambda: _caused(ValueError("bad amount")),
    "caused by a timeout": lambda: _caused(TimeoutError("upstream")),
    "caused by a timeout far below": lambda: _caused(TimeoutError("upstream"), depth=2),
    "caused by a cancellation": lambda: _caused(FlowCancelledException("enough")),
    "1001": lambda: _raise(NodeException(1001, "not built")),
    "1002": lambda: _raise(NodeException(1002, "no response")),
    "1003": lambda: _raise(NodeException(1003, "not read")),
    "result_error": lambda: _raise(FlowResultError(42, "over")),
    "output_validation": lambda: _raise(OutputValidationError("not this")),
    "cancelled": lambda: _raise(FlowCancelledException("enough")),
    "timeout_error": lambda: _raise(TimeoutError("upstream")),
    "async_timeout": lambda: asyncio.run(asyncio.wait_for(asyncio.sleep(60), 0.01)),
    "exit": lambda: sys.exit(3),
    "interrupt": lambda: _raise(GeneratorExit()),
    "surrogate": lambda: _raise(ValueError("\ud800\0")),
    "nan": lambda: float("nan"),
    "set": lambda: {1, 2},
    "tuple": lambda: (1, (2,)),
    "large": lambda: "x" * (8 * 1024 * 1024),
    "big_integer": lambda: 2**80,
    "sleeps": lambda: time.sleep(60),
}


class Ends(Node):
    """Ends as ``how`` says."""

    node_type = "t_ends"
    how: str

    def execute(self, execution: Any) -> Any:
        return WAYS[self.how]()


class EndsLater(Node):
    """The same from a coroutine."""

    node_type = "t_ends_later"
    how: str

    async def arun(self, execution: Any) -> Any:
        await asyncio.sleep(0)
        return WAYS[self.how]()
