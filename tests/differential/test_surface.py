"""Every operator of the SQL surface, on DuckDB, against PostgreSQL's own answer after every refresh.

The normal run takes each query with one refresh per batch, the nightly one in all five ways of batching.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from tests.differential.case_runner import MODES
from tests.differential.surface_runner import Family, Recording, load, plan_over, record, replay

FAMILIES = {family.name: family for family in load()}


def _runs() -> Iterator[Any]:
    for family in FAMILIES.values():
        for name in family.queries:
            for mode in MODES:
                marks = () if mode == "batch" else pytest.mark.nightly
                yield pytest.param(family, name, mode, id=f"{family.name}-{name}-{mode}", marks=marks)


@cache
def _recording(server: EmbeddedPostgres, name: str) -> Recording:
    dsn = server.create_database(f"surface_{name}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        recording = record(FAMILIES[name], connection)
    server.drop_database(f"surface_{name}")
    return recording


@pytest.mark.parametrize(("family", "name", "mode"), list(_runs()))
def test_query_equals_postgres_after_every_refresh(
    postgres_server: EmbeddedPostgres, family: Family, name: str, mode: str
) -> None:
    replay(family, _recording(postgres_server, family.name), [name], mode)


@pytest.mark.parametrize(
    ("family", "name"), [pytest.param(f, name, id=f"{f.name}-{name}") for f in FAMILIES.values() for name in f.refused]
)
def test_query_that_cannot_be_right_is_refused(postgres_server: EmbeddedPostgres, family: Family, name: str) -> None:
    schemas = _recording(postgres_server, family.name).schemas
    with pytest.raises(QueryError, match=r"not supported|more than 38 digits|cannot cast|constant|invalid input"):
        plan_over(family.refused[name], schemas)
