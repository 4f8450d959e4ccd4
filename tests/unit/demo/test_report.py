import json

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


def test_one_failed_check_fails_the_report_and_is_named() -> None:
    report = _report(passed=False)
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        report.print(console)
    assert not report.passed
    assert "failed for gold.a" in captured.get()


def test_a_report_without_checks_has_not_passed() -> None:
    assert not DemoReport((), (), "", LakeReference("", "")).passed
