"""What is known of a pattern's matches decides whether its matched part may be taken."""

from __future__ import annotations

import pytest

from pgtrickle_assets.query.regular_expressions import similar_to, translate


@pytest.mark.parametrize(
    "source", [r"(\d+)(\.\d+)?", "GET|POST|PUT", "[^a-z]+", r"@(.*)$", r"(\w+)-(\w+)", "a.*?b", r"\s*$", "(ab|c+d)x"]
)
def test_a_pattern_with_one_way_to_match_is_clear(source: str) -> None:
    assert not translate(source, fold_case=False).unclear


@pytest.mark.parametrize(
    "source", ["a|ab", "Y*?([0-9]{1,3})", "a?(ab)?", "(x|y)*|xz", r"\w+?\d+?", "(|a)b", r".*(\d+)?"]
)
def test_a_pattern_that_could_match_more_or_less_is_unclear(source: str) -> None:
    assert translate(source, fold_case=False).unclear


def test_letters_that_differ_in_case_only_begin_alike() -> None:
    assert not translate("A|ab", fold_case=False).unclear
    assert translate("A|ab", fold_case=True).unclear


@pytest.mark.parametrize("source", [r"\bx", "(?:x)", "[[:alpha:]]", "a++", "(a", "a)", "a{1", r"(a)\1", "*a", "[a"])
def test_syntax_that_engines_read_differently_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        translate(source, fold_case=False)


@pytest.mark.parametrize(
    ("source", "optional"), [("(a)?b", {1}), ("(a)(b)*", {2}), ("(a)|(b)", {1, 2}), ("(a)b", set())]
)
def test_groups_that_may_be_left_out_are_known(source: str, optional: set[int]) -> None:
    assert translate(source, fold_case=False).optional_groups == optional


def test_similar_to_escapes_what_is_no_operator_there() -> None:
    assert similar_to("(a|b).%_") == r"^((a|b)\..*.)$"
