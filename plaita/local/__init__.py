"""A flow in this process, without Redis: ``Flow`` and ``StepRecord``."""

from plaita.local.flow import Flow, StepRecord

__all__ = ["Flow", "StepRecord"]
