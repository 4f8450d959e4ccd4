"""What `pgtrickle status` says besides its table."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from pgtrickle_assets.cli import inspecting, main
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import StreamTableStatus


@pytest.fixture
def status_of(monkeypatch, capsys):
    """The output of `pgtrickle status` for one stream table in a status."""

    def show(status, error):
        line = StreamTableStatus(TableName("gold", "a"), status, "auto", "full", (), None, None, None, None, error)
        engine = SimpleNamespace(status=lambda: [line], behind=frozenset, has_source_changes=lambda: False)
        session = contextlib.nullcontext(SimpleNamespace(engine=engine))
        monkeypatch.setattr(inspecting, "open_workspace", lambda _: SimpleNamespace(session=lambda: session))
        assert main.run(["status"]) == 0
        return capsys.readouterr().out

    return show


def test_a_suspended_stream_table_says_which_command_refreshes_it_again(status_of):
    text = status_of("SUSPENDED", "boom")
    assert "gold.a: boom" in text
    assert "Run `pgtrickle resume gold.a` or `pgtrickle refresh gold.a` after mending the cause." in text


def test_an_active_stream_table_needs_no_remark(status_of):
    assert "Run" not in status_of("ACTIVE", None)
