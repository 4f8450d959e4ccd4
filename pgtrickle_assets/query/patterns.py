"""LIKE, SIMILAR TO and the functions of regular expressions, all with constant patterns.

Source: PostgreSQL 18 documentation 9.7 (pattern matching).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import constant_text, convert, postgres_name
from pgtrickle_assets.query.operators import call
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Expression, Literal
from pgtrickle_assets.query.regular_expressions import Pattern, similar_to, translate
from pgtrickle_assets.query.rewrite import conjunction, disjunction, negation
from pgtrickle_assets.query.types import BOOLEAN, INT32, VARCHAR, list_of

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer


def like_pattern(pattern: str, escape: str) -> str:
    """A LIKE pattern with backslash as escape and escapes only where both engines accept them."""
    result: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if escape and char == escape:
            index += 1
            if index >= len(pattern):
                raise ValueError("LIKE pattern must not end with escape character")
            char = pattern[index]
            result.append(f"\\{char}" if char in "%_\\" else char)
        else:
            result.append("\\\\" if char == "\\" else char)
        index += 1
    return "".join(result)


def _like(function: str) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        return _like_test(analyzer, function, node, "\\")

    return handle


def _like_test(analyzer: Analyzer, function: str, node: Any, escape: str) -> Expression:
    line = line_of(node)
    subject = convert(analyzer.analyze(node.this), VARCHAR)
    if subject.type != VARCHAR:
        raise QueryError(f"LIKE needs text, not {postgres_name(subject.type)}", line=line)
    if isinstance(node.expression, (exp.Any, exp.All)):
        return _like_several(analyzer, function, node, subject)
    test = _one_like(function, subject, analyzer.analyze(node.expression), escape, line)
    return negation(test) if node.args.get("negate") else test


def _like_several(analyzer: Analyzer, function: str, node: Any, subject: Expression) -> Expression:
    """`text [NOT] LIKE ANY|ALL (ARRAY[...])`, one test per pattern."""
    line, inner = line_of(node), node.expression.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if not isinstance(inner, exp.Array) or not inner.expressions:
        raise QueryError("LIKE ANY and LIKE ALL are supported for ARRAY[...] only", line=line)
    tests = [_one_like(function, subject, analyzer.analyze(item), "\\", line) for item in inner.expressions]
    if node.args.get("negate"):
        tests = [negation(test) for test in tests]
    joined = conjunction(tests) if isinstance(node.expression, exp.All) else disjunction(tests)
    return joined or tests[0]


def _one_like(function: str, subject: Expression, pattern: Expression, escape: str, line: int | None) -> Expression:
    pattern = convert(pattern, VARCHAR)
    if isinstance(pattern, Literal) and pattern.value is not None:
        try:
            pattern = Literal(like_pattern(str(pattern.value), escape), VARCHAR)
        except ValueError as error:
            raise QueryError(str(error), line=line) from error
    elif escape != "\\":
        raise QueryError("ESCAPE needs a constant pattern", line=line)
    return call(function, BOOLEAN, subject, pattern)


def _similar(analyzer: Analyzer, node: Any, escape: str = "\\") -> Expression:
    line = line_of(node)
    subject = convert(analyzer.analyze(node.this), VARCHAR, line=line)
    text = constant_text(analyzer.analyze(node.expression), "the pattern of SIMILAR TO", line)
    try:
        pattern = translate(similar_to(text, escape), fold_case=False)
    except ValueError as error:
        raise QueryError(f"the pattern {text!r} is not supported: {error}", line=line) from error
    test: Expression = call("regexp_like", BOOLEAN, subject, Literal(pattern.text, VARCHAR))
    return negation(test) if node.args.get("negate") else test


def _escape(analyzer: Analyzer, node: exp.Escape) -> Expression:
    inner, escape = node.this, node.expression.name
    negate = isinstance(inner, exp.Not)
    inner = inner.this if negate else inner
    if isinstance(inner, exp.SimilarTo):
        test = _similar(analyzer, inner, escape)
    else:
        test = _like_test(analyzer, "ilike" if isinstance(inner, exp.ILike) else "like", inner, escape)
    return negation(test) if negate else test


def _constant_pattern(expression: Expression, flags: str, line: int | None) -> Pattern:
    """A constant pattern that means the same to PostgreSQL, Java and RE2.

    Raises:
        QueryError: It is no constant, or uses syntax that the engines read differently.
    """
    text = constant_text(expression, "a regular expression", line)
    try:
        return translate(text, fold_case="i" in flags)
    except ValueError as error:
        raise QueryError(f"the regular expression {text!r} is not supported: {error}", line=line) from error


def _extracting_pattern(expression: Expression, flags: str, line: int | None) -> Pattern:
    """A constant pattern of which also the matched part is the same everywhere."""
    pattern = _constant_pattern(expression, flags, line)
    if pattern.unclear:
        raise QueryError(
            f"what the regular expression {constant_text(expression, '', line)!r} matches is not supported: PostgreSQL "
            f"takes the longest match, Spark the first, and they differ for {pattern.unclear}",
            line=line,
        )
    return pattern


def _regexp(flags: str) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        pattern = _constant_pattern(analyzer.analyze(node.expression), flags, line_of(node))
        subject = convert(analyzer.analyze(node.this), VARCHAR)
        test: Expression = call("regexp_like", BOOLEAN, subject, Literal(pattern.text, VARCHAR))
        return negation(test) if node.args.get("negate") else test

    return handle


def _mandatory(pattern: Pattern, groups: range, line: int | None) -> None:
    if pattern.optional_groups & set(groups):
        raise QueryError(
            "a regular expression whose group may be left out is not supported: Spark gives '' for it, not NULL",
            line=line,
        )


def substring_pattern(subject: Expression, pattern: Expression, line: int | None) -> Expression:
    """substring(text from pattern): the first group, or the whole match without groups; NULL without a match."""
    found = _extracting_pattern(pattern, "", line)
    _mandatory(found, range(1, 2), line)
    return _part(subject, found, 1 if found.groups else 0)


def _part(subject: Expression, pattern: Pattern, group: int) -> Expression:
    args = (convert(subject, VARCHAR), Literal(pattern.text, VARCHAR), Literal(group, INT32))
    return Call("regexp_substring", args, VARCHAR)


def _flags(args: list[Expression], index: int, name: str, allowed: str, line: int | None) -> str:
    flags = constant_text(args[index], f"the flags of {name}", line) if len(args) > index else ""
    if set(flags) - set(allowed):
        raise QueryError(f"{name} flags {flags!r} are not supported", line=line)
    return flags


def _regexp_like(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) not in (2, 3):
        return None
    pattern = _constant_pattern(args[1], _flags(args, 2, name, "i", line), line)
    return call("regexp_like", BOOLEAN, convert(args[0], VARCHAR), Literal(pattern.text, VARCHAR))


def _regexp_substr(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    return _part(args[0], _extracting_pattern(args[1], "", line), 0) if len(args) == 2 else None


def _regexp_count(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 2:
        return None
    pattern = _extracting_pattern(args[1], "", line)
    if pattern.matches_nothing:
        raise QueryError("regexp_count of a pattern that matches the empty text is not supported", line=line)
    return call("regexp_count", INT32, convert(args[0], VARCHAR), Literal(pattern.text, VARCHAR))


def _regexp_match(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) not in (2, 3):
        return None
    pattern = _extracting_pattern(args[1], _flags(args, 2, name, "i", line), line)
    _mandatory(pattern, range(1, pattern.groups + 1), line)
    literal = Literal(pattern.text, VARCHAR)
    groups = (Literal(n, INT32) for n in range(1, pattern.groups + 1)) if pattern.groups else (Literal(0, INT32),)
    return Call("regexp_match", (convert(args[0], VARCHAR), literal, *groups), list_of(VARCHAR))


def _regexp_replace(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) not in (3, 4):
        return None
    flags = _flags(args, 3, name, "gi", line)
    pattern = _extracting_pattern(args[1], flags, line)
    replacement = constant_text(args[2], "the replacement of regexp_replace", line)
    if any(char in replacement for char in "\\$&"):
        raise QueryError("regexp_replace with references in the replacement is not supported", line=line)
    if pattern.matches_nothing and replacement:
        raise QueryError(
            "regexp_replace with a pattern that matches the empty text is not supported: engines count such matches "
            "differently",
            line=line,
        )
    options = Literal("g" if "g" in flags else "", VARCHAR)
    subject, what = convert(args[0], VARCHAR), Literal(pattern.text, VARCHAR)
    return call("regexp_replace", VARCHAR, subject, what, Literal(replacement, VARCHAR), options)


FUNCTIONS: dict[str, Callable[[Analyzer, str, list[Expression], int | None], Expression | None]] = {
    "regexp_like": _regexp_like,
    "regexp_count": _regexp_count,
    "regexp_match": _regexp_match,
    "regexp_substr": _regexp_substr,
    "regexp_replace": _regexp_replace,
}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {
    exp.Like: _like("like"),
    exp.ILike: _like("ilike"),
    exp.SimilarTo: _similar,
    exp.Escape: _escape,
    exp.RegexpLike: _regexp(""),
    exp.RegexpILike: _regexp("i"),
}
