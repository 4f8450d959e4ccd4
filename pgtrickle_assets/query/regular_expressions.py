"""Regular expressions of PostgreSQL in the syntax that Java and RE2 read alike.

PostgreSQL takes the longest of all matches that begin first, the other two the first that alternatives and greedy parts
lead to. Whether there is a match at all is the same; what is matched is so only where no choice can lead to a longer
one. Source: PostgreSQL 18 documentation 9.7.3 (POSIX regular expressions) and 9.7.3.5 (matching rules).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations

_WORD, _SPACE = r"\p{L}\p{Nl}0-9_", r"\t-\r \x85\p{Z}"
_CLASSES = {"w": _WORD, "d": "0-9", "s": _SPACE}
_LITERAL_ESCAPES = frozenset(".^$*+?()[]{}|/\\-")
_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,\d*)?\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern in common syntax, and what is known of its matches.

    `optional_groups` are the numbers of groups that a match can leave out; `unclear` says in words why the engines may
    match different parts of a text, or is empty; `matches_nothing` says whether a match can be empty.
    """

    text: str
    groups: int
    optional_groups: frozenset[int]
    unclear: str
    matches_nothing: bool


@dataclass(slots=True)
class _Atom:
    """One part of a branch: its text, the character it begins with (if one), what Python calls it."""

    text: str
    first: str | None
    python: str
    is_group: bool = False
    empty: bool = False


def translate(source: str, *, fold_case: bool) -> Pattern:
    """A pattern in the syntax that both engines read as PostgreSQL does.

    Raises:
        ValueError: Syntax that they read differently, or that is not supported.
    """
    reader = _Reader(source, fold_case=fold_case)
    text, empty = reader.alternatives(outermost=True)
    # PostgreSQL's dot matches a newline.
    mode = "si" if fold_case else "s"
    return Pattern(f"(?{mode}){text}", reader.groups, frozenset(reader.optional), reader.unclear, empty)


class _Reader:
    def __init__(self, source: str, *, fold_case: bool) -> None:
        self._source, self._at, self._fold = source, 0, fold_case
        self.groups, self.optional, self.unclear = 0, set[int](), ""
        self._variable: list[str] = []
        self._lazy = self._alternatives = False
        if "(?" in source or source.startswith("***"):
            raise ValueError("(? and *** are not supported")

    def alternatives(self, *, outermost: bool = False) -> tuple[str, bool]:
        """Branches up to the end or the closing parenthesis, and whether one can match the empty text."""
        before, branches, prefixes, empty = self.groups, list[str](), list[str](), False
        while True:
            text, prefix, nothing = self._branch()
            empty = empty or nothing
            branches.append(text)
            prefixes.append(prefix)
            if self._peek() != "|":
                break
            self._at += 1
        if outermost and self._at < len(self._source):
            raise ValueError("parentheses are not balanced")
        if len(branches) > 1:
            self._alternatives = True
            self.optional |= set(range(before + 1, self.groups + 1))
            if any(a.startswith(b) or b.startswith(a) for a, b in combinations(prefixes, 2)):
                self._doubt("alternatives that can begin alike")
        if self._lazy and (len(self._variable) > 1 or self._alternatives):
            self._doubt("a non-greedy quantifier beside another one")
        return "|".join(branches), empty

    def _branch(self) -> tuple[str, str, bool]:
        """The text of a branch, the fixed letters that it begins with, and whether it can match the empty text."""
        texts: list[str] = []
        prefix, fixed, empty = "", True, True
        while self._peek() not in ("", "|", ")"):
            before = self.groups
            atom = self._atom()
            least, quantifier = self._quantifier()
            if fixed and least and atom.first is not None and not atom.is_group:
                prefix += atom.first
            fixed = fixed and atom.first is not None and not atom.is_group and not quantifier
            if quantifier:
                self._quantified(atom, least, range(before + 1, self.groups + 1))
            empty = empty and (atom.empty or not least)
            texts.append(atom.text + quantifier)
        return "".join(texts), prefix, empty

    def _quantified(self, atom: _Atom, least: int, groups: range) -> None:
        if not least:
            self.optional |= set(groups)
        if atom.is_group and not least and any(self._overlaps(part, atom.first) for part in self._variable):
            self._doubt("an optional group after a repeated part that can match its beginning")
        self._variable.append("." if atom.is_group else atom.python)

    def _overlaps(self, part: str, first: str | None) -> bool:
        flags = re.DOTALL | (re.IGNORECASE if self._fold else 0)
        return first is None or re.fullmatch(part, first, flags) is not None

    def _doubt(self, reason: str) -> None:
        self.unclear = self.unclear or reason

    def _quantifier(self) -> tuple[int, str]:
        match = _QUANTIFIER.match(self._source, self._at)
        if match is None:
            if re.match(r"\{\d", self._source[self._at :]):
                raise ValueError("braces are not balanced")
            return 1, ""
        self._at = match.end()
        text = match.group()
        least = int(match.group(1)) if match.group(1) else int(text == "+")
        if self._peek() == "?":
            self._at += 1
            self._lazy, text = True, f"{text}?"
        if _QUANTIFIER.match(self._source, self._at):
            raise ValueError("a quantifier cannot follow another one")
        return least, text

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise ValueError("it ends too early")
        self._at += 1
        return char

    def _atom(self) -> _Atom:
        char = self._take()
        match char:
            case "(":
                self.groups += 1
                start = self._at
                inside, empty = self.alternatives()
                if self._take() != ")":
                    raise ValueError("parentheses are not balanced")
                begin = self._source[start : start + 1]
                plain = begin.isalnum() or (begin == "\\" and self._source[start + 1 : start + 2] in _LITERAL_ESCAPES)
                first = self._source[start + (begin == "\\")] if plain else None
                if "|" in inside or _QUANTIFIER.match(self._source, start + 1 + (begin == "\\")):
                    first = None
                return _Atom(f"({inside})", self._folded(first), ".", is_group=True, empty=empty)
            case "[":
                return self._bracket()
            case "\\":
                return self._escape()
            case "$":
                # Java's also matches before a newline at the end.
                return _Atom(r"\z", None, "(?!)", empty=True)
            case "^":
                return _Atom("^", None, "(?!)", empty=True)
            case ".":
                return _Atom(".", None, ".")
            case "*" | "+" | "?":
                raise ValueError("a quantifier needs something before it")
            case _:
                return _Atom(re.escape(char) if char in "{}" else char, self._folded(char), re.escape(char))

    def _folded(self, char: str | None) -> str | None:
        return char.casefold() if char is not None and self._fold else char

    def _escape(self) -> _Atom:
        char = self._take()
        if char in _CLASSES:
            return _Atom(f"[{_CLASSES[char]}]", None, f"\\{char}")
        if char.lower() in _CLASSES:
            return _Atom(f"[^{_CLASSES[char.lower()]}]", None, f"\\{char}")
        if char in "ntr":
            return _Atom(f"\\{char}", {"n": "\n", "t": "\t", "r": "\r"}[char], f"\\{char}")
        if char not in _LITERAL_ESCAPES:
            raise ValueError(f"\\{char} is not supported")
        return _Atom(f"\\{char}", char, re.escape(char))

    def _bracket(self) -> _Atom:
        """A bracket expression; Java reads [ and && in it as operators, so they are escaped."""
        start, parts = self._at, list[str]()
        if self._peek() == "^":
            parts.append(self._take())
        first = True
        while (char := self._take()) != "]" or first:
            first = False
            if char == "[" and self._peek() in (":", ".", "="):
                raise ValueError("[: :], [. .] and [= =] are not supported")
            if char == "\\":
                parts.append(self._escape_in_bracket())
            else:
                parts.append(f"\\{char}" if char in "[]&^" else char)
        return _Atom(f"[{''.join(parts)}]", None, self._python_bracket(start))

    def _python_bracket(self, start: int) -> str:
        inside = self._source[start : self._at - 1]
        negation = "^" if inside.startswith("^") else ""
        escaped = re.sub(r"\\.|[\[&|~]", _escaped, inside.removeprefix("^"), flags=re.DOTALL)
        return f"[{negation}{escaped}]"

    def _escape_in_bracket(self) -> str:
        char = self._take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _LITERAL_ESCAPES or char in "ntr":
            return f"\\{char}"
        raise ValueError(f"\\{char} in brackets is not supported")


def _escaped(match: re.Match[str]) -> str:
    text = match.group()
    return text if text.startswith("\\") else f"\\{text}"


def similar_to(source: str, escape: str = "\\") -> str:
    """The regular expression for a pattern of SIMILAR TO.

    Raises:
        ValueError: The pattern ends with the escape character.
    """
    parts: list[str] = []
    index, inside = 0, False
    while index < len(source):
        char = source[index]
        if escape and char == escape:
            index += 1
            if index >= len(source):
                raise ValueError("it ends with the escape character")
            parts.append(f"\\{source[index]}" if source[index] in _LITERAL_ESCAPES else source[index])
        elif inside:
            inside = char != "]"
            parts.append("\\\\" if char == "\\" else char)
        elif char in "%_":
            parts.append(".*" if char == "%" else ".")
        elif char in ".^$\\":
            parts.append(f"\\{char}")
        else:
            inside = char == "["
            parts.append(char)
        index += 1
    return f"^({''.join(parts)})$"
