"""Credentials of tenants: what nodes and bridges sign in with elsewhere, sealed before they are stored (ledger T1).

Owns: whose a write is (the tenant that is set, never a guess), and the seal. Must not: be imported where node code
runs, nor show a value anywhere but to who loads it.
"""

from __future__ import annotations

from plaita.credentials.seal import Seal, new_key
from plaita.credentials.storage import CredentialStore, MemoryCredentialStore, RedisCredentialStore

__all__ = ["CredentialStore", "MemoryCredentialStore", "RedisCredentialStore", "Seal", "new_key"]
