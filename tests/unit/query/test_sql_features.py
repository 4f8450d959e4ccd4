"""The rule table is consistent."""

from __future__ import annotations

from pgtrickle_assets.query.sql_features import SQL_FEATURES, feature


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in SQL_FEATURES]
    assert len(codes) == len(set(codes))


def test_limits_and_refusals_are_explained() -> None:
    assert all(rule.note or rule.support != "limited" for rule in SQL_FEATURES)


def test_reasons_of_opaque_nodes_are_rules() -> None:
    assert feature("recursive_cte").support == "full_only"
    assert feature("tablesample").support == "full_only"
