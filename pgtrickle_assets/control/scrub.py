"""Taking secrets out of texts that are stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"
MAX_LENGTH = 4000

# user:password@ in a URL of any scheme. Greedy up to the last @ before a slash: a password may hold an unescaped @.
_URL_PASSWORD = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/]+(?=@)", re.IGNORECASE)
_NAMES = (
    r"password|passwd|passphrase|secret|token|credential|signature|authorization"
    r"|access[._-]?key|api[._-]?key|key[._-]?id|\bpwd|\bsas|\bsig"
)
# name = value as in libpq strings, query strings, JSON and Python reprs; name 'value' as in SQL.
_NAMED = re.compile(
    rf"(?P<head>(?:{_NAMES})[\w.-]*['\"]?(?:\s*[=:]\s*|\s+(?=')))"
    r"(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|(?:Bearer\s+|Basic\s+)?[^\s,;&)}\]'\"]+)",
    re.IGNORECASE,
)


def scrub(text: str, *, secrets: Iterable[str] = ()) -> str:
    """A text without passwords, keys and tokens, short enough to store.

    Args:
        text: Usually an error's message.
        secrets: Values that must not appear, whatever is around them. Empty ones are ignored.

    Returns:
        At most `MAX_LENGTH` characters, without the NUL characters that PostgreSQL cannot store.
    """
    for secret in sorted((value for value in secrets if value), key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _URL_PASSWORD.sub(rf"\g<head>{MASK}", text)
    text = _NAMED.sub(rf"\g<head>{MASK}", text)
    text = text.replace("\0", "").strip()
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
