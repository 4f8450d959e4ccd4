"""to_char of exact numbers: the layouts that a constant format gives to numbers of each length and sign.

PostgreSQL walks through format and number at once. Which step it takes depends on the sign, on how many digits stand
before the point and, with FM, on how many count after it, but on no digit itself. So it is walked through here for each
of these cases, and SQL only picks the layout and fills in the digits.

Source: PostgreSQL 18, src/backend/utils/adt/formatting.c (NUMDesc_prepare, NUM_processor, NUM_numpart_to_char,
get_last_relevant_decnum, numeric_to_char).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.plan import Literal

_PATTERN = re.compile(r"FM|MI|[90.,DGS]")
_MAX_DIGITS: Final = 30
_NEGATIVE: Final = 100_000

Layout = tuple[str | int, ...]
"""Texts, and indices of digits of the number written without its point."""


@dataclass(slots=True)
class NumberFormat:
    """A parsed format: its patterns, and what PostgreSQL finds out about it before it starts."""

    patterns: list[str]
    before: int = 0
    after: int = 0
    decimal: bool = False
    fill: bool = False
    minus: bool = False
    sign: str = ""
    zero_start: int | None = None
    zero_end: int = 0


def parse_number_format(text: str) -> NumberFormat:
    """A format of the patterns 9 0 . , D G S MI and FM.

    Raises:
        ValueError: It holds another pattern, or one that PostgreSQL does not allow there.
    """
    patterns = _PATTERN.findall(text.upper())
    if "".join(patterns) != text.upper() or "SG" in text.upper():
        raise ValueError(f"to_char with the number format {text!r} is not supported: only FM 9 0 . , D G MI S are")
    found = NumberFormat(patterns)
    sign_at = 0
    for pattern in patterns:
        match pattern:
            case "9" | "0":
                if pattern == "0" and found.zero_start is None and not found.decimal:
                    found.zero_start = found.before
                if found.decimal:
                    found.after += 1
                else:
                    found.before += 1
                if pattern == "0":
                    found.zero_end = found.before + found.after
            case "." | "D":
                if found.decimal:
                    raise ValueError("multiple decimal points in a number format")
                found.decimal = True
            case "FM":
                found.fill = True
            case "S" | "MI" if found.sign or (pattern == "S" and found.minus):
                raise ValueError("a number format with several signs is not supported")
            case "S":
                found.sign, sign_at = ("after" if found.decimal else "before"), found.before
            case "MI":
                found.minus = True
            case _:
                pass
    if not 0 < found.before + found.after <= _MAX_DIGITS or not found.before:
        raise ValueError(f"a number format needs 1 to {_MAX_DIGITS} digits, and one before the point")
    if found.decimal and not found.after and (found.sign or found.minus):
        raise ValueError("a number format with a sign and no digit after its point is not supported")
    if found.sign == "before" and sign_at == found.before:
        found.sign = "after"
    return found


@dataclass(slots=True)
class _Walk:
    """PostgreSQL's state while it writes one number; the number is a list of digit indices, '0', '#' and '.'."""

    shape: NumberFormat
    number: list[str | int]
    spaces: int
    negative: bool
    zero: bool
    last: int | None
    written: list[str | int] = field(default_factory=lambda: list[str | int]())
    position: int = 0
    current: int = 0
    inside: bool = False
    signed: bool = False
    count: int = 0

    def run(self) -> Layout:
        """The layout."""
        shape = self.shape
        self.signed = shape.minus or (not self.negative and shape.fill and not shape.sign)
        self.count = shape.after + shape.before - 1 + (not self.signed and self.spaces == 0)
        for pattern in shape.patterns:
            match pattern:
                case "9" | "0" | "." | "D":
                    self.digit(pattern)
                case "," | "G":
                    if self.inside:
                        self.written.append(",")
                    elif not shape.fill:
                        self.written.append(" ")
                case "MI":
                    if self.negative:
                        self.written.append("-")
                    elif not shape.fill:
                        self.written.append(" ")
                case _:
                    pass
        return _merged(self.written)

    @property
    def only_point_counts(self) -> bool:
        """Whether FM leaves no digit after the point."""
        return self.last is not None and self.number[self.last] == "."

    @property
    def space_before_point(self) -> bool:
        """Whether the next digit is the 0 of a fraction, which is not written."""
        return self.shape.zero_start is None and self.position == 0 and self.zero and self.shape.after != 0

    def digit(self, pattern: str) -> None:
        """Write what stands at a digit or at the point of the format."""
        shape = self.shape
        self.inside = False
        forced = shape.zero_start is not None and shape.zero_start <= self.current
        reached = self.current >= self.spaces or shape.zero_start == self.current
        if not self.signed and reached and (not self.space_before_point or self.only_point_counts):
            self.write_sign()
        if self.current < self.spaces:
            if forced:
                self.written.append("0")
                self.inside = True
            elif not shape.fill:
                self.written.append(" ")
        else:
            self.write(pattern)
            self.position = min(self.position + 1, len(self.number))
        end = self.count + (self.spaces > 0) + shape.decimal
        if self.last is not None and self.last == self.position:
            end = self.current
        if self.current + 1 == end and shape.sign == "after":
            self.written.append("-" if self.negative else "+")
        self.current += 1

    def write_sign(self) -> None:
        """Write the sign before the first digit."""
        if self.shape.sign == "after":
            return
        if self.shape.sign:
            self.written.append("-" if self.negative else "+")
        elif self.negative:
            self.written.append("-")
        elif not self.shape.fill:
            self.written.append(" ")
        self.signed = True

    def write(self, pattern: str) -> None:
        """Write the next character of the number."""
        here = self.number[self.position] if self.position < len(self.number) else None
        if here == ".":
            self.written.append(".")
        elif self.last is not None and self.position > self.last and pattern != "0":
            return
        elif self.space_before_point:
            if not self.shape.fill:
                self.written.append(" ")
            elif self.only_point_counts:
                self.written.append("0")
        elif here is not None:
            self.written.append(here)
            self.inside = True


def _merged(written: list[str | int]) -> Layout:
    merged: list[str | int] = []
    for item in written:
        if merged and isinstance(item, str) and isinstance(merged[-1], str):
            merged[-1] += item
        else:
            merged.append(item)
    return tuple(merged)


def layout(shape: NumberFormat, length: int, counting: int, *, negative: bool) -> Layout:
    """The layout of numbers of one kind.

    Args:
        shape: The format.
        length: Digits before the point; 0 for a 0 alone.
        counting: Digits after the point up to the last that is not 0.
        negative: Whether the number, rounded, is below 0.
    """
    if length > shape.before:
        number: list[str | int] = [*"#" * shape.before, ".", *"#" * shape.after]
        spaces, point = 0, shape.before
        counting = shape.after
    else:
        whole = max(length, 1)
        fraction: list[str | int] = [".", *range(whole, whole + shape.after)] if shape.after else []
        number = [*range(whole), *fraction]
        spaces, point = shape.before - whole, whole
    last: int | None = None
    if shape.fill and shape.decimal and "." in number:
        last = point + counting
        if shape.zero_end > spaces:
            last = max(last, min(len(number) - 1, shape.zero_end - spaces))
    return _Walk(shape, number, spaces, negative, length == 0, last).run()


def _to_char(emission: Emission) -> str:
    written = emission.call.args[1]
    assert isinstance(written, Literal)
    shape = parse_number_format(str(written.value))
    cases: dict[Layout, list[int]] = {}
    for negative in (False, True):
        for length in range(shape.before + 2):
            for counting in range(shape.after + 1 if shape.fill else 1):
                key = _NEGATIVE * negative + length * 100 + counting
                cases.setdefault(layout(shape, length, counting, negative=negative), []).append(key)
    string = "STRING" if emission.spark else "VARCHAR"

    def over_value(names: tuple[str, ...]) -> str:
        (value,) = names
        text = f"CAST(abs({value}) AS {string})"
        whole, fraction = f"split_part({text}, '.', 1)", f"split_part({text}, '.', 2)"
        counting = f"length(rtrim('0', {fraction}))" if emission.spark else f"length(rtrim({fraction}, '0'))"
        length = f"CASE WHEN {whole} = '0' THEN 0 ELSE least(length({whole}), {shape.before + 1}) END"
        sign = f"CASE WHEN {value} < 0 THEN {_NEGATIVE} ELSE 0 END"
        kind = f"{sign} + 100 * ({length})" + (f" + {counting}" if shape.fill and shape.after else "")
        zeros = "0" * (shape.after - (emission.types[0].scale or 0))
        digits = f"concat(replace({text}, '.', ''), '{zeros}')"
        return f"(CASE WHEN {value} IS NOT NULL THEN {emission.writer.let((digits, kind), picked)} END)"

    def picked(names: tuple[str, ...]) -> str:
        digits, kind = names
        branches = " ".join(
            f"WHEN {kind} IN ({', '.join(map(str, keys))}) THEN {_filled(one, digits)}" for one, keys in cases.items()
        )
        return f"(CASE {branches} END)"

    return emission.writer.let(emission.args[:1], over_value)


def _filled(one: Layout, digits: str) -> str:
    """SQL of a layout; digits beside each other are taken at once."""
    parts: list[str] = ["''"]
    run: list[int] = []
    for item in (*one, ""):
        if isinstance(item, int) and (not run or item == run[-1] + 1):
            run.append(item)
            continue
        if run:
            parts.append(f"substring({digits}, {run[0] + 1}, {len(run)})")
        run = [item] if isinstance(item, int) else []
        if isinstance(item, str) and item:
            parts.append(f"'{item}'")
    return f"concat({', '.join(parts)})"


register("number_to_char", _to_char)
