"""What `pgtrickle explain` says, from the project alone: no database, no Spark."""

from __future__ import annotations

import json
import re

import pytest

from pgtrickle_assets import Project, StreamTable
from pgtrickle_assets.query.types import DATE, INT64, VARCHAR, ColumnSchema, TableName, TableSchema, decimal
from pgtrickle_assets.refresh.definition import define
from pgtrickle_assets.refresh.explanation import explain
from pgtrickle_assets.refresh.explanation_views import as_mermaid, as_text
from pgtrickle_assets.schema_cache import KnownSchemas

ORDERS = TableSchema(
    TableName("public", "orders"),
    (ColumnSchema("id", INT64), ColumnSchema("d", DATE), ColumnSchema("r", VARCHAR), ColumnSchema("x", decimal(9, 2))),
    ("id",),
)


@pytest.fixture
def explained(tmp_path):
    def run(query, **options):
        table = StreamTable(name="gold.t", query=query, **options)
        known = KnownSchemas(sources={"shop": {ORDERS.name: ORDERS}}, lake={})
        project = Project([table], sources={"shop": {"dsn": "postgresql://none"}}, home=tmp_path, known=known)
        return explain(define(project, "gold.t"))

    return run


def test_a_differential_query_shows_operators_states_and_statements(explained):
    found = explained("SELECT r, d, avg(x) AS a FROM orders WHERE r <> 'x' GROUP BY r, d")
    assert found["differential"]
    assert found["reasons"] == []
    assert [state["rule"] for state in found["state_tables"]] == ["group_by"]
    assert found["steps"][-1]["target"] == "result"
    assert "raw.orders@delta" in found["steps"][0]["reads"]
    assert set(found["rules"]) >= {item["rule"] for item in found["operators"]}
    json.dumps(found)


def test_a_query_that_is_recomputed_says_why_and_what_to_do(explained):
    found = explained("SELECT id FROM orders WHERE d = current_date")
    text = as_text(found)
    assert not found["differential"]
    assert [reason["code"] for reason in found["reasons"]] == ["stable_function"]
    assert "recomputed in full" in text.splitlines()[0]
    assert found["reasons"][0]["advice"] in text


def test_mode_full_is_told_apart_from_a_query_that_cannot(explained):
    assert "because refresh_mode is full" in as_text(explained("SELECT id FROM orders", refresh_mode="full"))


def test_text_shows_every_operator_state_and_statement(explained):
    found = explained("SELECT r, avg(x) AS a FROM orders GROUP BY r")
    text = as_text(found)
    for item in found["operators"]:
        assert item["detail"] in text
    for state in found["state_tables"]:
        assert state["table"] in text
    for step in found["steps"]:
        assert step["sql"].splitlines()[0] in text
    assert "SELECT" not in as_text(found, sql=False)


def test_mermaid_is_one_graph_whose_edges_have_ends(explained):
    text = as_mermaid(explained('SELECT r AS "a""b", count(*) AS n FROM orders WHERE r < \'q"<z\' GROUP BY r'))
    lines = text.splitlines()
    assert lines[0] == "flowchart BT"
    nodes = {match.group(1) for line in lines if (match := re.fullmatch(r'\s+(\w+)\["[^"]*"\]', line))}
    edges = [match.groups() for line in lines if (match := re.fullmatch(r"\s+(\w+) --> (\w+)", line))]
    assert edges
    assert {end for edge in edges for end in edge} <= nodes
    assert text.count("subgraph") == text.count("\n  end") == 2


def test_an_analysis_adds_rows_and_seconds_to_text_and_diagram(explained):
    found = explained("SELECT r, count(*) AS n FROM orders GROUP BY r")
    target = found["steps"][-1]["target"]
    step = {"target": target, "rule": "group_by", "role": "result", "rows": 7, "seconds": 0.25, "sql": "SELECT 1"}
    analysis = {
        "strategy": "differential", "reason_code": "small_delta", "reason": "7 changed rows", "cut": 12,
        "inputs": [{"table": "raw.orders", "since": 3, "until": 12}], "rows_read": 7, "steps": [step],
        "operators": [{"number": item["number"], "rows": 70 + item["number"], "seconds": 1.5}
                      for item in found["operators"]],
        "changes": [{"table": "gold.t", "rows_inserted": 4, "rows_deleted": 3}], "result": "gold.t",
        "spark_jobs": 1, "seconds": 0.5, "source_changes_waiting": True,
    }  # fmt: skip
    text = as_text({**found, "analysis": analysis})
    assert "reads raw.orders from snapshot 3 to 12" in text
    assert re.search(rf"{target}\s+group_by\s+7\s+0\.250", text)
    assert "gold.t: +4 -3 rows" in text
    for item in found["operators"]:
        assert re.search(
            rf"{re.escape(item['operator'])}.*\[{item['rule']}.*\]  {70 + item['number']} rows, 1.500 s", text
        )
        assert f"<br/>{70 + item['number']} rows, 1.500 s" in as_mermaid({**found, "analysis": analysis})
    assert "wait in the buffers" in text
    assert "7 rows, 0.250 s" in as_mermaid({**found, "analysis": analysis})
