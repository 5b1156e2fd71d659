"""The flow model in one place to import from: nodes, properties, definitions and :func:`parse_flow`."""

from __future__ import annotations

from plaita.flow.basenode import BaseNode, ErrorHandler, NodeTypes, OpaqueNode, Preparation, RecoverableErrorHandler
from plaita.flow.definition import FlowDefinition, NodePlan
from plaita.flow.fields import Part
from plaita.flow.limits import DEFAULT_LIMITS, Limits
from plaita.flow.parse import LATER_TYPES, parse_flow
from plaita.flow.properties import Property

__all__ = [
    "DEFAULT_LIMITS",
    "LATER_TYPES",
    "BaseNode",
    "ErrorHandler",
    "FlowDefinition",
    "Limits",
    "NodePlan",
    "NodeTypes",
    "OpaqueNode",
    "Part",
    "Preparation",
    "Property",
    "RecoverableErrorHandler",
    "parse_flow",
]
