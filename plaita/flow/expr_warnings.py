"""Text that looks like an expression of some language but stays as it is: worth a word to its author (rule 18)."""

from __future__ import annotations

import re

from plaita.flow.expr_scope import ROOTS

_UNCALLED = re.compile(r"\w\([^()$]*\$")
_BARE_PATH = re.compile(r"\$(?:F|" + "|".join(ROOTS) + r")(?![\w$-])")


def literal_warnings(text: str) -> list[str]:
    """Reasons to look again at a text, or part of one, that is taken literally. Linear in the text."""
    found: list[str] = []
    if "{{" in text or "}}" in text:
        found.append("{{ }} is plain text here; an expression in a text is written {% $INPUT.name %}")
    if "${" in text:
        found.append("${ } is plain text here; an expression in a text is written {% $INPUT.name %}")
    if "{%" in text:
        found.append("{% without %} is plain text")
    path = _BARE_PATH.search(text)
    if path is not None:
        found.append(f"{path.group()} inside a text is plain text; write it inside {{% %}} to have its value")
    elif _UNCALLED.search(text) is not None:
        found.append("a call inside a text is plain text; write {% $F.name(...) %}")
    return found
