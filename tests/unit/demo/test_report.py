import json

import pytest
from rich.console import Console

from pgtrickle_assets.demo.report import CheckRow, DemoReport, LakeReference, RefreshRow


def _report(*, passed: bool = True) -> DemoReport:
    refreshes = (
        RefreshRow("gold.a", "initial", "full", "first refresh", 0, 10, 3.0, None, 4),
        RefreshRow("gold.a", "arrivals", "differential", "small delta", 1200, 5, 0.5, 2.0, 6),
    )
    checks = (CheckRow("gold.a", "differential_equals_full", True), CheckRow("gold.a", "agrees_with_postgres", passed))
    return DemoReport(refreshes, checks, "postgresql://x", LakeReference("postgresql://y", "/lake/"))


def test_json_has_the_documented_keys_and_no_others() -> None:
    document = json.loads(_report().to_json())
    assert set(document) == {"refreshes", "checks", "source", "lake"}
    assert set(document["refreshes"][0]) == {
        "stream_table", "batch", "strategy", "reason", "delta_in", "delta_out", "seconds", "full_seconds", "snapshot",
    }  # fmt: skip
    assert set(document["checks"][0]) == {"stream_table", "check", "passed"}
    assert set(document["lake"]) == {"catalog", "data_path"}


def test_table_shows_each_refresh_below_its_batch() -> None:
    console = Console(width=200, record=True, file=None, quiet=False, color_system=None)
    with console.capture() as captured:
        _report().print(console)
    text = captured.get()
    assert text.index("initial") < text.index("first refresh") < text.index("arrivals") < text.index("small delta")
    assert "1,200" in text
    assert "agrees_with_postgres: 1 stream tables, passed" in text


def _wide_report() -> DemoReport:
    reason = "estimated 12.3 s differential against 14.5 s full for 1200000 changed rows " * 2
    row = RefreshRow("gold.aircraft_utilisation", "arrivals", "differential", reason, 1_200_000, 12_345, 0.5, 2.0, 123)
    return DemoReport((row,), (), "", LakeReference("", ""))


@pytest.mark.parametrize("width", [80, 100, 120, 160, 400])
def test_a_refresh_is_one_line_and_its_name_and_numbers_are_whole(width: int) -> None:
    console = Console(width=width, color_system=None, force_terminal=True)
    with console.capture() as captured:
        _wide_report().print(console)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    (line,) = [line for line in lines if "gold" in line]
    assert {"gold.aircraft_utilisation", "differential", "1,200,000", "12,345", "0.50", "2.00"} <= set(line.split())


def test_the_reason_is_cut_before_it_goes_and_goes_only_where_nothing_else_can() -> None:
    shown = {}
    for width in (80, 100, 110, 160):
        console = Console(width=width, color_system=None, force_terminal=True)
        with console.capture() as captured:
            _wide_report().print(console)
        shown[width] = captured.get()
    assert "estimated" not in shown[80]
    assert "checks" not in shown[80]
    assert all("estimated 12.3 s" in shown[width] for width in (110, 160))
    assert "…" in shown[160]


def test_output_that_is_no_terminal_is_wide_enough_and_the_console_stays_as_it_was() -> None:
    console = Console(width=80, color_system=None, force_terminal=False)
    with console.capture() as captured:
        _wide_report().print(console)
    assert "estimated 12.3 s" in captured.get()
    assert "snapshot" in captured.get()
    assert console.width == 80


def test_one_failed_check_fails_the_report_and_is_named() -> None:
    report = _report(passed=False)
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        report.print(console)
    assert not report.passed
    assert "failed for gold.a" in captured.get()


def test_a_report_without_checks_has_not_passed() -> None:
    assert not DemoReport((), (), "", LakeReference("", "")).passed
