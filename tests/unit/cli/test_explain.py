"""`pgtrickle explain`: three forms of one document, and Spark only where something is computed."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import pytest

from pgtrickle_assets import Project, StreamTable
from pgtrickle_assets.cli import inspecting, main
from pgtrickle_assets.query.types import INT64, ColumnSchema, TableName, TableSchema
from pgtrickle_assets.refresh.definition import define
from pgtrickle_assets.refresh.explanation import explain
from pgtrickle_assets.schema_cache import KnownSchemas

ORDERS = TableSchema(TableName("public", "orders"), (ColumnSchema("id", INT64),), ("id",))
ANALYSIS = {
    "strategy": "no_change", "reason_code": "inputs_unchanged", "reason": "nothing moved", "cut": 4, "inputs": [],
    "rows_read": 0, "steps": [], "changes": [], "result": "gold.t", "spark_jobs": 0, "seconds": 0.1,
    "source_changes_waiting": False,
}  # fmt: skip


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Runs `pgtrickle explain gold.t` over a project of one stream table; what was asked of Spark is in `asked`."""
    known = KnownSchemas(sources={"shop": {ORDERS.name: ORDERS}}, lake={})
    table = StreamTable(name="gold.t", query="SELECT id FROM orders WHERE id > 3")
    project = Project([table], sources={"shop": {"dsn": "postgresql://none"}}, home=tmp_path, known=known)
    document, asked = explain(define(project, "gold.t")), []

    def analyze(name):
        asked.append(name)
        return {**document, "analysis": ANALYSIS}

    engine = SimpleNamespace(explain=lambda _: document, analyze=analyze)
    workspace = SimpleNamespace(
        project=project,
        session=lambda: contextlib.nullcontext(SimpleNamespace(engine=engine)),
        use_warm_spark=lambda: asked.append("warm spark"),
    )
    monkeypatch.setattr(inspecting, "open_workspace", lambda _: workspace)

    def run(*options):
        status = main.run(["explain", "gold.t", *options])
        return status, capsys.readouterr().out

    return SimpleNamespace(run=run, asked=asked, document=document)


@pytest.mark.parametrize("options", [("--json",), ("--format", "json"), ("-f", "json")])
def test_json_is_the_whole_document(command, options):
    status, output = command.run(*options)
    assert status == 0
    assert json.loads(output) == command.document


def test_text_and_mermaid_are_views_of_it(command):
    assert command.run()[1].startswith("gold.t is kept up to date from what changed")
    assert command.run("--format", "mermaid")[1].startswith("flowchart BT\n")
    assert command.asked == []


def test_analyze_uses_a_warm_spark_and_shows_what_a_refresh_would_do(command):
    assert "A refresh to cut 4 now: no_change (nothing moved)" in command.run("--analyze")[1]
    assert command.asked == ["warm spark", "gold.t"]
    assert json.loads(command.run("--analyze", "--json")[1])["analysis"] == ANALYSIS


def test_an_unknown_format_is_wrong_use(command):
    assert command.run("--format", "xml")[0] == 2
