"""The worked examples, differentially on DuckDB, in five ways of cutting their statements into batches and deltas."""

from __future__ import annotations

import pytest

from tests.differential.case_runner import MODES, maintain
from tests.differential.cases import Case, load


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", load(), ids=lambda case: case.id)
def test_case_gives_the_expected_rows_after_every_batch(case: Case, mode: str) -> None:
    maintain(case, mode)
