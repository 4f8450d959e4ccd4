"""Constants of array types as PostgreSQL writes them.

Source: PostgreSQL 18 documentation 8.15.2 (array value input), for one dimension.
"""

from __future__ import annotations

import re

_ITEM = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s",{}\\](?:[^",{}\\]*[^\s",{}\\])?))\s*(?:,(?=.)|$)', re.DOTALL
)
"""One element of an array constant."""


def constant_items(text: str) -> list[str | None]:
    """The elements of '{...}'; None for NULL.

    Raises:
        ValueError: It is not a list of elements.
    """
    outside = text.strip()
    if not (outside.startswith("{") and outside.endswith("}")):
        raise ValueError(text)
    text = outside[1:-1]
    items: list[str | None] = []
    index = 0 if text.strip() else len(text)
    while index < len(text):
        match = _ITEM.match(text, index)
        if match is None:
            raise ValueError(text)
        quoted, plain = match["quoted"], match["plain"]
        if quoted is None:
            items.append(None if plain.upper() == "NULL" else plain)
        else:
            items.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        index = match.end()
    return items
