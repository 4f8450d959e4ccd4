"""Set-returning functions in FROM as SQL text.

Sources: PostgreSQL 18 documentation 9.26 (set returning functions), 9.19 (arrays) and 9.16 (JSON).
"""

from __future__ import annotations

from pgtrickle_assets.query.plan import Call, Generate
from pgtrickle_assets.query.render_expressions import ExpressionWriter
from pgtrickle_assets.query.render_types import identifier

WITH_ORDINALITY = "with_ordinality"
"""A generator wrapped in this call also yields the position of each element, from 1, as the last column."""


def generator_source(node: Generate, child: str, writer: ExpressionWriter) -> str:
    """The FROM text that joins `child` with the elements that the generator returns for each row."""
    generator, numbered = node.generator, False
    if generator.function == WITH_ORDINALITY:
        inner = generator.args[0]
        assert isinstance(inner, Call)
        generator, numbered = inner, True
    array = _elements(generator, writer)
    names = [identifier(column.id, writer.dialect) for column in node.columns]
    if writer.dialect == "spark":
        outer = "OUTER " if node.outer else ""
        if not numbered:
            return f"{child} LATERAL VIEW {outer}explode({array}) pgt_g AS {names[0]}"
        position = f"pgt_p AS pgt_position, {names[0]}"
        inner_text = f"{child} LATERAL VIEW {outer}posexplode({array}) pgt_g AS {position.split(' AS ')[1]}"
        return f"(SELECT *, CAST(pgt_position + 1 AS BIGINT) AS {names[1]} FROM {inner_text}) AS pgt_n"
    items = [f"unnest({array}) AS {names[0]}"]
    if numbered:
        items.append(f"CAST(generate_subscripts({array}, 1) AS BIGINT) AS {names[1]}")
    lateral = f"(SELECT {', '.join(items)}) AS pgt_g"
    join = "LEFT JOIN LATERAL" if node.outer else "CROSS JOIN LATERAL"
    return f"{child} {join} {lateral}{' ON TRUE' if node.outer else ''}"


def _elements(generator: Call, writer: ExpressionWriter) -> str:
    """The array whose elements the generator returns."""
    args = [writer.expression(arg) for arg in generator.args]
    spark = writer.dialect == "spark"
    match generator.function:
        case "unnest":
            return args[0]
        case "generate_series":
            return _series(generator, args, spark=spark)
        case "json_array_elements":
            if spark:
                return f"transform(variant_get(parse_json({args[0]}), '$', 'array<variant>'), x -> to_json(x))"
            return f"CAST({args[0]} AS JSON[])"
        case "json_array_elements_text":
            if spark:
                return f"variant_get(parse_json({args[0]}), '$', 'array<string>')"
            return f"list_transform(CAST({args[0]} AS JSON[]), lambda x: x ->> '$')"
        case "json_object_keys":
            return f"array_sort(json_object_keys({args[0]}))" if spark else f"list_sort(json_keys({args[0]}))"
        case "string_to_table":
            return writer.expression(Call("string_to_array", generator.args, generator.type))
        case _:
            raise KeyError(f"no generator {generator.function!r}")


def _series(generator: Call, args: list[str], *, spark: bool) -> str:
    start, stop = args[0], args[1]
    step = args[2] if len(args) > 2 else None
    kind = generator.args[0].type
    if kind.is_integer:
        by = step or f"CAST(1 AS {'BIGINT' if kind.name == 'int64' else 'INT'})"
        if spark:
            # Spark's sequence counts down by itself; PostgreSQL's series is empty when the step leads away.
            towards = f"({stop} - {start}) * sign({by}) >= 0"
            return f"(CASE WHEN {towards} THEN sequence({start}, {stop}, {by}) ELSE array() END)"
        series = f"generate_series({start}, {stop}, {by})"
        # DuckDB's is of bigint.
        return series if kind.name == "int64" else f"CAST({series} AS INTEGER[])"
    if spark:
        return f"(CASE WHEN {stop} >= {start} THEN sequence({start}, {stop}, {step}) ELSE array() END)"
    return f"generate_series({start}, {stop}, {step})"
