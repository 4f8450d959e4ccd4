"""Tables that are given to Spark as one come apart as they were."""

from __future__ import annotations

import pyarrow as pa

from pgtrickle_assets.refresh.stacking import stacked


def test_tables_given_together_come_apart_as_they_were() -> None:
    tables = [
        pa.table({"a": pa.array([1, None], pa.int32()), "b": ["x", None], "c": pa.array([5, 6], pa.int32())}),
        pa.table({"c": pa.array([], pa.int32()), "z": pa.array([], pa.date32())}),
        pa.table({"b": ["y"], "a": pa.array([3], pa.int64()), "d": pa.array([9], pa.int32())}),
    ]
    together, places = stacked(tables)
    assert together.num_rows == 3
    assert together.num_columns == 1 + len({place for own in places for place in own})
    for number, (table, own) in enumerate(zip(tables, places, strict=True)):
        part = together.filter(pa.array([n == number for n in together.column(0).to_pylist()], pa.bool_()))
        assert part.select(own).rename_columns(table.column_names).cast(table.schema).to_pydict() == table.to_pydict()
        assert part.select(own).schema.types == table.schema.types
