"""Helpers for tests, plaita's own and those of people who write nodes: a real server, and a proxy that fails on cue.

The pytest fixtures are in ``plaita.testing.fixtures``: put ``from plaita.testing.fixtures import *`` into a conftest.
Nothing of plaita's at run time imports this package.
"""
