"""The nearest valid name, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `name`, or None when nothing is close."""
    choices = sorted(set(candidates))
    by_folded = {choice.casefold(): choice for choice in choices}
    matches = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`Did you mean 'x'?`, or the valid names when nothing is close, or an empty text without candidates."""
    choices = sorted(set(candidates))
    match = nearest(name, choices)
    if match is not None:
        return f"Did you mean {match!r}?"
    if not choices:
        return ""
    shown = ", ".join(choices[:12]) + (", ..." if len(choices) > 12 else "")
    return f"Valid names: {shown}."
