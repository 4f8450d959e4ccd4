import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtrickle_assets.capture.position import Position, Snapshot, TableState
from pgtrickle_assets.errors import SourceError

XIDS = st.integers(3, 40)


@st.composite
def snapshots(draw):
    xmax = draw(XIDS)
    running = draw(st.frozensets(st.integers(3, 40).filter(lambda xid: xid < xmax)))
    return Snapshot(min(running, default=xmax), xmax, running)


def seen(snapshot):
    return {xid for xid in range(3, 50) if snapshot.sees(xid)}


@given(snapshots())
def test_text_form_reads_back(snapshot):
    assert Snapshot.parse(str(snapshot)) == snapshot


def test_text_form_is_that_of_postgres():
    assert str(Snapshot.parse("10:20:10,14,15")) == "10:20:10,14,15"
    assert str(Snapshot.parse("745:745:")) == "745:745:"


@given(snapshots(), snapshots())
def test_covers_means_that_nothing_is_seen_less(one, other):
    assert one.covers(other) == (seen(other) <= seen(one))


@given(snapshots(), snapshots())
def test_common_sees_what_both_see(one, other):
    assert seen(one.common(other)) == seen(one) & seen(other)


def test_position_reads_back():
    state = TableState(16400, "g", "t", "c", 16400, {16410: "16410/abc"}, frozenset({"l1"}))
    position = Position("7", 5, Snapshot(3, 9, frozenset({3, 4})), "r", {("public", 'a"b.c'): state})
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize("text", ["10:20:", "[]", '[99,"7",5,"1:1:","r",[]]', '{"a":1}', ""])
def test_a_foreign_text_is_an_error_with_a_way_out(text):
    with pytest.raises(SourceError, match="cannot be read"):
        Position.parse(text)
