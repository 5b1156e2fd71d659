"""Flow definitions: bodies by content hash, versions that point at a hash (DECISIONS 14).

Bodies are opaque bytes, never removed by a new version or by ``remove``: a waiting execution loads by its row's hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plaita.store.call import Call, lane_for, script, text
from plaita.store.keys import Keys


@dataclass(frozen=True, slots=True)
class PutResult:
    """``created`` is False when this content was there already under this version."""

    version: str
    flow_hash: str
    created: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    version: str
    flow_hash: str


@dataclass(frozen=True, slots=True)
class FlowSummary:
    flow_id: str
    latest: str
    versions: int


@dataclass(frozen=True, slots=True)
class VersionSummary:
    version: str
    flow_hash: str
    put_at_ms: int


def put(
    keys: Keys, flow_id: str, version: str | None, flow_hash: str, body: bytes, *, force: bool = False
) -> Call[PutResult]:
    """Store a definition. ``version`` None: the next integer, or the latest again when its content is the same.

    Refused: ``version_exists`` (detail: the hash there) when the version holds other content and not ``force``.
    """
    return Call(
        "flows.put",
        script("flow_put"),
        (keys.flow_body(flow_hash), keys.flow_versions(flow_id), keys.flow_meta(flow_id), keys.flow_list),
        (flow_id, version or "", flow_hash, body, int(force)),
        lane_for(body),
        True,
        lambda reply: PutResult(text(reply[0]), flow_hash, reply[1] == 1),
    )


def resolve(keys: Keys, flow_id: str, version: str = "latest") -> Call[Resolved]:
    """Which version and hash a start would take. Refused: ``no_flow``, ``no_version`` (detail: the latest)."""
    return Call(
        "flows.resolve",
        script("flow_resolve"),
        (keys.flow_versions(flow_id), keys.flow_meta(flow_id)),
        (version,),
        "writer",
        True,
        lambda reply: Resolved(text(reply[0]), text(reply[1])),
    )


def body(keys: Keys, flow_hash: str) -> Call[bytes | None]:
    """The definition's bytes, or None when no such body is stored (ledger F6)."""
    key = keys.flow_body(flow_hash)
    return Call("flows.body", None, (key,), ("GET", key), "bulk", True, _bytes_or_none)


def _bytes_or_none(reply: Any) -> bytes | None:
    return None if reply is None else bytes(reply)


def list_flows(keys: Keys) -> Call[list[FlowSummary]]:
    """All flows of the tenant, by id."""
    return Call(
        "flows.list_flows",
        script("flow_list"),
        (keys.flow_list,),
        (keys.flows_ns,),
        "writer",
        True,
        lambda reply: sorted(
            (FlowSummary(text(flow), text(latest), int(count)) for flow, latest, count in reply),
            key=lambda flow: flow.flow_id,
        ),
    )


def versions(keys: Keys, flow_id: str) -> Call[list[VersionSummary]]:
    """The versions of one flow in the order they were put. Refused: ``no_flow``."""
    return Call(
        "flows.versions",
        script("flow_versions"),
        (keys.flow_versions(flow_id), keys.flow_meta(flow_id)),
        (),
        "writer",
        True,
        lambda reply: sorted(
            (VersionSummary(text(version), text(digest), int(at or 0)) for version, digest, at in reply),
            key=lambda summary: (summary.put_at_ms, summary.version),
        ),
    )


def remove(keys: Keys, flow_id: str) -> Call[int]:
    """Take the flow's versions away; how many there were. Bodies stay for what is under way. Refused: ``no_flow``."""
    return Call(
        "flows.remove",
        script("flow_remove"),
        (keys.flow_versions(flow_id), keys.flow_meta(flow_id), keys.flow_list),
        (flow_id,),
        "writer",
        False,
        lambda reply: int(reply[0]),
    )
