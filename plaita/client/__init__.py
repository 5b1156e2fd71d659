"""For programs that start and follow executions: ``Client`` (blocking) and ``AsyncClient``. The commands use it too.

Owns: what a caller may ask for, checked and worded; the JSON forms of CONTRACT. Must not: run node code, take leases.
"""

from plaita.client.aio import AsyncClient
from plaita.client.blocking import Client
from plaita.client.operations import NotInThisVersionError, StartedExecution

__all__ = ["AsyncClient", "Client", "NotInThisVersionError", "StartedExecution"]
