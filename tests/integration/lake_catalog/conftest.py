from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lake_pair import Pair, location_in

from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.location import LakeLocation


@pytest.fixture
def location(database: str, tmp_path: Path) -> LakeLocation:
    """Where a lake could be; nothing is there."""
    return location_in(database, tmp_path)


@pytest.fixture
def pair(location: LakeLocation) -> Iterator[Pair]:
    """A new lake made by us, and a DuckDB session that was attached when it was empty."""
    Lake.bootstrap(location).close()
    pair = Pair(location)
    yield pair
    pair.long_lived.close()
    pair.lake.close()
