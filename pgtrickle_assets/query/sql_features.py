"""What of PostgreSQL's SQL a defining query may use: the one table that the documentation is generated from.

A rule names a construct, whether it is planned, and what is different or missing. Codes are stable: reasons of a full
refresh and refusals refer to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as TypingLiteral

Support = TypingLiteral["yes", "limited", "full_only", "no"]


@dataclass(frozen=True, slots=True)
class SqlFeature:
    """One construct.

    `support`: yes; limited (see note); full_only (planned, but each refresh recomputes all); no (an error).
    `example` is a query or expression over tables of the reader's imagination. `note` says what is different.
    """

    code: str
    area: str
    construct: str
    support: Support
    example: str
    note: str = ""


def _rules(area: str, *rows: tuple[str, str, Support, str, str]) -> tuple[SqlFeature, ...]:
    return tuple(SqlFeature(row[0], area, *row[1:]) for row in rows)


SQL_FEATURES: tuple[SqlFeature, ...] = (
    *_rules(
        "Joins",
        ("inner_join", "INNER, comma and CROSS JOIN", "yes", "a JOIN b ON a.x = b.x", ""),
        ("outer_join", "LEFT, RIGHT, FULL JOIN", "yes", "a LEFT JOIN b ON a.x = b.x AND b.y > 1", ""),
        ("using_join", "USING and NATURAL", "yes", "a JOIN b USING (x)", "Common columns appear once, first."),
        ("non_equi_join", "Other conditions than =", "yes", "a JOIN b ON a.x BETWEEN b.lo AND b.hi", ""),
        ("lateral", "LATERAL subqueries", "yes", "c, LATERAL (SELECT ... WHERE o.cid = c.id LIMIT 2) l", ""),
        (
            "set_returning",
            "Functions in FROM",
            "limited",
            "t, unnest(t.tags) WITH ORDINALITY AS u(x, n)",
            "unnest, generate_series, json(b)_array_elements(_text), json(b)_object_keys, string_to_table.",
        ),
        ("rows_from", "ROWS FROM (...)", "no", "ROWS FROM (f(1), g(2))", ""),
        ("tablesample", "TABLESAMPLE", "full_only", "t TABLESAMPLE BERNOULLI (10)", "Without REPEATABLE."),
    ),
    *_rules(
        "Subqueries",
        (
            "scalar_subquery",
            "Scalar, also correlated",
            "yes",
            "SELECT (SELECT max(x) FROM b WHERE b.k = a.k) FROM a",
            "More than one row is an error when the value would be used.",
        ),
        ("exists", "EXISTS, NOT EXISTS", "yes", "WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", ""),
        (
            "in_subquery",
            "IN, NOT IN, also of rows",
            "yes",
            "WHERE (x, y) NOT IN (SELECT p, q FROM b)",
            "Three-valued, as in PostgreSQL.",
        ),
        ("quantified", "op ANY, op ALL", "yes", "WHERE x > ALL (SELECT y FROM b)", "Rows only with ANY."),
        ("derived_table", "Subqueries in FROM, WITH", "yes", "WITH q AS (SELECT ...) SELECT ... FROM q", ""),
        ("recursive_cte", "WITH RECURSIVE", "full_only", "WITH RECURSIVE r AS (... UNION ALL ...)", "UNION ALL only."),
        (
            "outer_aggregate",
            "Aggregate of an outer query in a subquery",
            "no",
            "HAVING EXISTS (... WHERE b.x > max(a.y))",
            "",
        ),
        (
            "array_subquery",
            "ARRAY(subquery)",
            "limited",
            "ARRAY(SELECT x FROM b ORDER BY y)",
            "A plain SELECT of one column, without grouping or LIMIT.",
        ),
    ),
    *_rules(
        "Grouping",
        ("group_by", "GROUP BY columns, expressions, names, ordinals", "yes", "GROUP BY 1, upper(name)", ""),
        (
            "functional_dependency",
            "Columns that the grouped primary key determines",
            "yes",
            "SELECT t.id, t.name ... GROUP BY t.id",
            "",
        ),
        ("grouping_sets", "GROUPING SETS, ROLLUP, CUBE, GROUPING()", "yes", "GROUP BY ROLLUP (a, b)", ""),
        ("having", "HAVING", "yes", "HAVING count(*) > 1", ""),
        (
            "basic_aggregates",
            "count, sum, avg, min, max",
            "yes",
            "sum(x) FILTER (WHERE y)",
            "Also DISTINCT, and count of rows.",
        ),
        (
            "statistics",
            "Variance family",
            "limited",
            "stddev_samp(x)",
            "Exact for integers and numeric up to six digits after the point; DISTINCT for double precision only.",
        ),
        (
            "paired_statistics",
            "covar_*, corr, regr_*",
            "yes",
            "corr(y, x)",
            "From exact sums for numbers of up to 12 digits, otherwise in double precision.",
        ),
        ("bool_bit_aggregates", "bool_and, bool_or, every, bit_*", "yes", "every(x > 0)", ""),
        (
            "list_aggregates",
            "string_agg, array_agg, json(b)_agg, json(b)_object_agg",
            "limited",
            "string_agg(x, ',' ORDER BY y)",
            "Ties, and lists without ORDER BY, are ordered by the value. JSON of numbers, text, booleans, dates. "
            "DISTINCT not for objects.",
        ),
        (
            "ordered_set",
            "percentile_cont, percentile_disc, mode",
            "limited",
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
            "Constant fractions, one or an array.",
        ),
        ("any_value", "any_value", "yes", "any_value(x)", "The smallest value."),
    ),
    *_rules(
        "Rows and order",
        (
            "distinct",
            "DISTINCT, DISTINCT ON",
            "yes",
            "SELECT DISTINCT ON (k) ... ORDER BY k, t DESC",
            "Also over groups and windows.",
        ),
        ("set_operations", "UNION, INTERSECT, EXCEPT, with and without ALL", "yes", "a EXCEPT ALL b", ""),
        (
            "window",
            "Window functions, named windows, over aggregates",
            "limited",
            "sum(x) OVER (PARTITION BY k ORDER BY t)",
            "RANGE offsets over integers, numeric, dates, timestamps, no months. "
            "EXCLUDE for counts, sums, averages, extremes and the variance family; not with an offset in RANGE, and "
            "GROUP and TIES not with one in ROWS.",
        ),
        (
            "top",
            "ORDER BY with LIMIT, OFFSET, FETCH, WITH TIES",
            "yes",
            "ORDER BY x DESC LIMIT 10",
            "Constant counts; ties are broken by all columns.",
        ),
        ("order_by", "ORDER BY alone", "yes", "SELECT ... ORDER BY x", "No effect: a table has no order. Said once."),
        ("values", "VALUES", "yes", "VALUES (1, 'a'), (2, 'b')", ""),
        ("for_update", "FOR UPDATE, INTO, data-changing WITH", "no", "SELECT ... FOR UPDATE", ""),
    ),
    *_rules(
        "Values",
        ("integers", "smallint, integer, bigint", "yes", "7 / 2", "Division cuts; overflow is an error."),
        (
            "numeric",
            "numeric",
            "limited",
            "price * (1 - discount)",
            "At most 38 digits. A result that would need more is an error, never rounded.",
        ),
        (
            "numeric_division",
            "numeric / numeric, avg",
            "limited",
            "sum(x) / 7.0",
            "PostgreSQL's digits from 0.0001 on, 20 digits below; a quotient of 10^17 or more is an error.",
        ),
        (
            "floats",
            "real, double precision",
            "yes",
            "x * 1.5",
            "NaN is largest and equal to itself. Leaving the range is an error.",
        ),
        (
            "text",
            "text, varchar(n)",
            "yes",
            "name || '-' || code",
            "Compared bytewise; casts to varchar(n) cut. Quotients and numeric without scale need a cast before text.",
        ),
        ("char", "Casts to char(n)", "no", "x::char(3)", "Its values are padded with blanks."),
        ("collation", "COLLATE other than C", "no", 'x COLLATE "de_DE"', ""),
        (
            "dates",
            "date, timestamp, timestamptz",
            "yes",
            "d + interval '1 month'",
            "Session time zone UTC. to_date of texts in exactly the format, else an error.",
        ),
        (
            "interval",
            "interval",
            "limited",
            "d + n * interval '1 day'",
            "In expressions: constants, differences and age() of timestamps, EXTRACT of them. Not as a result.",
        ),
        (
            "json",
            "json, jsonb",
            "limited",
            "doc -> 'a' ->> 'b'",
            "Constant keys; ->, ->>, #>, #>>, ?, builders. Values are not compared; objects print without blanks. "
            "Numbers in objects and in elements of arrays lose zeros at the end.",
        ),
        (
            "arrays",
            "Arrays of scalar types",
            "limited",
            "7 = ANY (tags)",
            "Subscripts, length, concatenation, unnest, op ANY and ALL, @>, <@, &&.",
        ),
        (
            "like",
            "LIKE, ILIKE, SIMILAR TO",
            "yes",
            "name ILIKE 'a%'",
            "Patterns of SIMILAR TO are constants; so are those of LIKE ANY and LIKE ALL.",
        ),
        (
            "regex",
            "~, ~*, regexp_*, substring from",
            "limited",
            "name ~ '^a.*z$'",
            "Constant patterns. To take out what matched, only patterns whose first match is the longest.",
        ),
        (
            "to_char",
            "to_char of dates and times",
            "limited",
            "to_char(d, 'YYYY-MM')",
            "Common fields.",
        ),
        (
            "to_char_number",
            "to_char of numbers",
            "limited",
            "to_char(x, 'FM999,990.00')",
            "Integers and numeric; FM, 9, 0, comma, point, D and G as in the locale C, S, MI.",
        ),
        ("numeric_functions", "sqrt, ln, exp, power of numeric", "no", "sqrt(1.5)", "Cast to double precision."),
        (
            "width_bucket",
            "width_bucket",
            "limited",
            "width_bucket(x, 0, 100, 10)",
            "An array of thresholds is constant and in ascending order.",
        ),
        ("numeric_scale", "scale", "no", "scale(1.50)", "min_scale and trim_scale are there."),
        ("row_values", "Rows", "limited", "(a, b) < (1, 2)", "In comparisons, IN and IS NULL."),
    ),
    *_rules(
        "Functions that change",
        (
            "stable_function",
            "now(), current_date, ...",
            "full_only",
            "WHERE t > now() - interval '1 day'",
            "Recomputed by every refresh; give it a schedule.",
        ),
        ("volatile_function", "random(), clock_timestamp(), gen_random_uuid()", "full_only", "SELECT random()", ""),
    ),
)
"""All rules, in the order of the documentation."""


def feature(code: str) -> SqlFeature:
    """The rule with this code.

    Raises:
        KeyError: There is none.
    """
    for rule in SQL_FEATURES:
        if rule.code == code:
            return rule
    raise KeyError(code)
