"""Set-returning functions in FROM."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import common_type, convert, postgres_name
from pgtrickle_assets.query.expressions import Analyzer
from pgtrickle_assets.query.naming import function_name
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Column, Expression, Literal
from pgtrickle_assets.query.render_generators import WITH_ORDINALITY
from pgtrickle_assets.query.rewrite import IdGenerator
from pgtrickle_assets.query.scope import nearest
from pgtrickle_assets.query.set_functions import SUPPORTED, refusal
from pgtrickle_assets.query.types import INT32, INT64, INTERVAL, JSON, TIMESTAMP, TIMESTAMPTZ, VARCHAR


def generator_call(
    analyzer: Analyzer, node: Any, ids: IdGenerator, *, numbered: bool
) -> tuple[Call, tuple[Column, ...], list[str]]:
    """The generator of a function in FROM, its columns and their default names.

    Raises:
        QueryError: The function returns no set, or is not supported.
    """
    line = line_of(node)
    if not isinstance(node, exp.Anonymous):
        raise QueryError("this item in FROM is not supported", line=line)
    name = function_name(node)
    args = [analyzer.analyze(arg) for arg in node.expressions]
    generator, label = _generator(name, args, line)
    columns = [ids.column(generator.type, name=label)]
    names = [label]
    if numbered:
        generator = Call(WITH_ORDINALITY, (generator,), generator.type)
        columns.append(ids.column(INT64, name="ordinality", nullable=False))
        names.append("ordinality")
    return generator, tuple(columns), names


def _generator(name: str, args: list[Expression], line: int | None) -> tuple[Call, str]:
    plain = name.replace("jsonb_", "json_", 1)
    if name == "unnest" and len(args) == 1 and args[0].type.element is not None:
        return Call("unnest", tuple(args), args[0].type.element), name
    if name == "generate_series" and len(args) in (2, 3):
        return _series(args, line), name
    if plain in ("json_array_elements", "json_array_elements_text") and len(args) == 1 and args[0].type == JSON:
        return Call(plain, tuple(args), VARCHAR if plain.endswith("text") else JSON), "value"
    if plain == "json_object_keys" and len(args) == 1 and args[0].type == JSON:
        return Call(plain, tuple(args), VARCHAR), name
    if name == "string_to_table" and len(args) == 2:
        return Call(name, tuple(convert(arg, VARCHAR) for arg in args), VARCHAR), name
    kinds = ", ".join(postgres_name(arg.type) for arg in args)
    raise refusal(name, line, in_from=True) or QueryError(
        f"function {name}({kinds}) in FROM does not exist or is not supported",
        line=line,
        hint="" if name in SUPPORTED else nearest(name, SUPPORTED),
    )


def _series(args: list[Expression], line: int | None) -> Call:
    bounds = common_type([arg.type for arg in args[:2]])
    if bounds is not None and bounds.is_integer:
        kind = common_type([arg.type for arg in args])
        if kind is None or not kind.is_integer:
            raise QueryError("generate_series over numeric is not supported", line=line)
        kind = INT32 if kind.name == "int16" else kind
        return Call("generate_series", tuple(convert(arg, kind) for arg in args), kind)
    if len(args) == 3:
        moment = TIMESTAMP if bounds == TIMESTAMP else TIMESTAMPTZ
        step = convert(args[2], INTERVAL, line=line)
        if not isinstance(step, Literal):
            raise QueryError("the step of generate_series must be a constant", line=line)
        return Call("generate_series", (*(convert(arg, moment, line=line) for arg in args[:2]), step), moment)
    raise QueryError("generate_series needs integers, or timestamps and an interval", line=line)
