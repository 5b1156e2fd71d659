"""Bytes between supervisor, template and executors. Knows no Redis, no decision and no node."""
