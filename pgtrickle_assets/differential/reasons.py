"""The rule table: how each operator is maintained, and why a query may not be maintained differentially.

`explain`, the Dagster metadata and docs/sql-support.md are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle_assets.differential.steps import Reason
from pgtrickle_assets.query.plan import Opaque, QueryPlan
from pgtrickle_assets.query.rewrite import walk


@dataclass(frozen=True, slots=True)
class Rule:
    """How an operator is maintained: the rule in words, and where it comes from."""

    name: str
    operator: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a query is recomputed in full, and what a user can do."""

    code: str
    construct: str
    text: str
    advice: str


_DBSP = "Budiu et al., DBSP: Automatic Incremental View Maintenance, VLDB 2023"
_LARSON = "Larson and Zhou, Efficient Maintenance of Materialized Outer-Join Views, ICDE 2007"
_MUMICK = "Mumick, Quass and Mumick, Maintenance of Data Cubes and Summary Tables, SIGMOD 1997"
_PALPANAS = "Palpanas et al., Incremental Maintenance for Non-Distributive Aggregate Functions, VLDB 2002"

RULES: tuple[Rule, ...] = (
    Rule("delta", "input", "The delta of a table between frontier and cut, read from the catalog.", _DBSP),
    Rule(
        "linear",
        "WHERE, SELECT, UNION ALL, LATERAL unnest and set-returning functions",
        "Applied to the delta; weights are kept, so equal rows stay separate rows.",
        _DBSP,
    ),
    Rule(
        "inner_join",
        "inner and cross joins of any number of inputs",
        "dL x R1 + L0 x dR. A chain is one operator with one term per changed input, led by its delta; terms of "
        "unchanged inputs are not in the plan.",
        "Koch, Incremental Query Evaluation in a Ring of Databases, PODS 2010",
    ),
    Rule(
        "outer_join",
        "LEFT, RIGHT and FULL JOIN",
        "The inner delta, plus NULL-extended rows whose match appears or vanishes, decided by match counts before and "
        "after for the affected keys.",
        _LARSON,
    ),
    Rule(
        "semi_join",
        "EXISTS, IN, NOT EXISTS, NOT IN, ANY, ALL",
        "Changed left rows against the new right side, plus old left rows whose match flips. NOT IN is three-valued.",
        _LARSON,
    ),
    Rule(
        "group_by",
        "GROUP BY with COUNT, SUM, AVG, MIN, MAX, BOOL_AND, BOOL_OR",
        "Group state plus delta, in exact types; a group goes when its row count reaches 0.",
        _MUMICK,
    ),
    Rule(
        "aggregate_all",
        "aggregates without GROUP BY",
        "As GROUP BY with a single group that always keeps its row.",
        _MUMICK,
    ),
    Rule(
        "min_max_rescan",
        "MIN and MAX after deletions",
        "Groups that lost a value at or beyond their extremum are read again; no other group is.",
        _PALPANAS,
    ),
    Rule(
        "recompute_groups",
        "any other aggregate, DISTINCT aggregates, sums of floats",
        "Groups that the delta reaches, by old and new keys, are computed again; the old values are read from state.",
        _PALPANAS,
    ),
    Rule(
        "distinct",
        "DISTINCT, UNION, INTERSECT, EXCEPT, with and without ALL",
        "Row counts per side in state; rows appear and vanish with them.",
        "Gupta, Mumick and Subrahmanian, Maintaining Views Incrementally, SIGMOD 1993 (counting)",
    ),
    Rule(
        "window",
        "window functions",
        "Partitions of changed rows, old and new, are computed again from stored rows and delta.",
        "SQL:2016, 7.15",
    ),
    Rule(
        "top_k",
        "ORDER BY with LIMIT and OFFSET, DISTINCT ON, top n per parent",
        "Stored top rows plus insertions are ranked again; a partition that lost a top row is read again.",
        "Yi et al., Efficient Maintenance of Materialized Top-k Views, ICDE 2003",
    ),
    Rule("full", "any query", "The defining query is run in full and its result replaces the table.", ""),
)

OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle(
        "recursive_cte",
        "WITH RECURSIVE",
        "A change can travel any number of steps through the recursion.",
        "Keep the recursion in a stream table of its own and read that one.",
    ),
    Obstacle(
        "volatile_function",
        "random(), clock_timestamp(), gen_random_uuid()",
        "The function gives another value each time it is called, so old rows cannot be told from the inputs.",
        "Compute the value in the source.",
    ),
    Obstacle(
        "stable_function",
        "now(), current_date, localtimestamp and the like",
        "Its value moves although no source changed, so old rows cannot be told from the inputs.",
        "Move the comparison with the current time to the query that reads the stream table.",
    ),
    Obstacle(
        "tablesample",
        "TABLESAMPLE",
        "Every run draws another sample.",
        "Filter on a hash of the key instead.",
    ),
)


def rule(name: str) -> Rule:
    """The rule called `name`; KeyError when there is none."""
    for found in RULES:
        if found.name == name:
            return found
    raise KeyError(name)


def obstacle(code: str) -> Obstacle:
    """The obstacle with this code; KeyError when there is none."""
    for found in OBSTACLES:
        if found.code == code:
            return found
    raise KeyError(code)


def reasons_against(plan: QueryPlan) -> tuple[Reason, ...]:
    """Why the plan cannot be maintained differentially; empty when it can."""
    found: list[Reason] = []
    found.extend(Reason("volatile_function", f"{name} is volatile") for name in plan.volatile_functions)
    found.extend(Reason("stable_function", f"{name} moves with time") for name in plan.stable_functions)
    found.extend(Reason(node.reason, node.detail) for node in walk(plan.root) if isinstance(node, Opaque))
    return tuple(dict.fromkeys(found))
