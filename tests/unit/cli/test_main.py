"""The command line: exit status, one-line errors, machine-readable output."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pgtrickle_assets.cli import main
from pgtrickle_assets.cli.options import checked_names
from pgtrickle_assets.cli.output import print_error
from pgtrickle_assets.cli.projects import init
from pgtrickle_assets.errors import LakeError, PgTrickleError
from pgtrickle_assets.lake.catalog import check_metadata
from pgtrickle_assets.lake.connections import Connections
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.project import Project

COMMANDS = (
    "init",
    "apply",
    "list",
    "create",
    "alter",
    "drop",
    "pause",
    "resume",
    "snapshot",
    "restore",
    "migrate",
    "refresh",
    "check",
    "status",
    "explain",
    "history",
    "sink-status",
    "maintain",
    "metrics",
    "up",
    "down",
    "doctor",
    "version",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PGTRICKLE_PROJECT", raising=False)
    root = tmp_path / "shop"
    assert main.run(["init", str(root), "--empty"]) == 0
    (root / "stream_tables" / "gold").mkdir()
    (root / "stream_tables" / "gold" / "a.sql").write_text("/*---\nschedule: 5m\n---*/\nSELECT * FROM orders")
    return root


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('column "regoin" does not exist', 'column "regoin" does not exist. Try this.'),
        ("it is so.", "it is so. Try this."),
        ("is it so?", "is it so? Try this."),
        ("one of these:", "one of these: Try this."),
    ],
)
def test_a_hint_is_a_sentence_of_its_own(capsys, message, shown):
    error = PgTrickleError(message, hint="Try this.")
    assert str(error) == shown
    assert str(PgTrickleError(message)) == message
    print_error(error.message, error.hint)
    assert capsys.readouterr().err == f"error: {shown}\n"


def test_wrong_use_and_its_hint_are_two_sentences(capsys):
    assert main.run(["version", "--projct"]) == 2
    assert re.fullmatch(r"error: No such option: --projct.*\. See `.*--help`\.\n", capsys.readouterr().err)


def test_an_option_before_the_command_is_told_its_place(capsys):
    assert main.run(["--project", "x", "status"]) == 2
    assert "Options follow the command" in capsys.readouterr().err


def test_help_lists_all_commands(capsys):
    assert main.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command, capsys):
    assert main.run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"pgtrickle {command}" in text
    assert "--json" in text


@pytest.mark.parametrize("arguments", [["nope"], ["list", "--nope"], ["explain"], ["history", "--limit", "0"]])
def test_wrong_use_is_status_2_and_one_line(arguments, capsys):
    assert main.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "--help" in error


def test_an_unknown_stream_table_is_wrong_use_and_names_the_nearest(folder, capsys):
    assert main.run(["explain", "gold.b", "--project", str(folder)]) == 2
    assert "Did you mean 'gold.a'?" in capsys.readouterr().err


def test_an_unknown_partition_is_wrong_use_and_runs_nothing(folder, capsys):
    assert main.run(["refresh", "gold.a", "--partition", "nonsense", "--project", str(folder)]) == 2
    assert "'nonsense' is not a partition of gold.a" in capsys.readouterr().err


def test_a_failure_is_status_1_and_one_line(tmp_path, capsys):
    assert main.run(["list", "--project", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pgtrickle init" in error


def test_a_traceback_comes_with_debug_alone(tmp_path, capsys):
    assert main.run(["list", "--project", str(tmp_path)], debug=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_debug_may_stand_anywhere(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main.main(["list", "--debug", "--project", str(tmp_path)])
    assert caught.value.code == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_unforeseen_error_is_readable_too(monkeypatch, capsys):
    def broken(**_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(main, "app", broken)
    assert main.run([]) == 1
    assert (
        capsys.readouterr().err == "error: ZeroDivisionError: by zero. Run it again with --debug for the traceback.\n"
    )


def test_errors_of_several_lines_become_one(monkeypatch, capsys):
    def broken(**_):
        raise PgTrickleError("first\nsecond", hint="Do this.")

    monkeypatch.setattr(main, "app", broken)
    assert main.run([]) == 1
    assert capsys.readouterr().err == "error: first second. Do this.\n"


def test_list_needs_no_database(folder, capsys):
    assert main.run(["list", "--project", str(folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["schedule"], row["reads"], row["columns"]) == ("gold.a", "5m", ["public.orders"], None)


def test_a_variable_that_is_no_setting_is_warned_of_once_with_the_nearest_name(folder, monkeypatch, capsys):
    (folder / "pgtrickle.yaml").write_text("sources:\n  shop:\n    dsn: ${PGTRICKLE_SHOP}\n")
    monkeypatch.setenv("PGTRICKLE_SHOP", "host=x")
    monkeypatch.setenv("PGTRICKLE_SPARK_MASTR", "local[2]")
    assert main.run(["list", "--project", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == (
        "warning: PGTRICKLE_SPARK_MASTR is not a setting and has no effect. Did you mean PGTRICKLE_SPARK_MASTER?\n"
    )
    assert json.loads(captured.out)


def test_the_current_folder_is_the_project(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main.run(["list"]) == 0
    assert "gold.a" in capsys.readouterr().out


def test_version_in_both_forms(capsys):
    assert main.run(["version"]) == 0
    plain = capsys.readouterr().out.strip()
    assert main.run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pgtrickle"] == plain


def test_init_overwrites_nothing(folder, capsys):
    assert main.run(["init", str(folder), "--empty"]) == 1
    assert "is a project already" in capsys.readouterr().err


def test_a_skeleton_loads_and_keeps_its_state_out_of_git(tmp_path):
    from pgtrickle_assets.cli.skeletons import write_skeleton

    written = write_skeleton(tmp_path / "p", empty=False)
    assert {".gitignore", "pgtrickle.yaml", "sample/source.sql"} <= set(written)
    assert ".pgtrickle/" in (tmp_path / "p" / ".gitignore").read_text()
    project = Project.load(tmp_path / "p")
    assert project.order == ("silver.order_details", "gold.revenue_by_day")
    assert checked_names(project, None) == list(project.order)


def test_every_command_that_a_text_names_exists():
    package = Path(main.__file__).parents[1]
    commands = {command.name or command.callback.__name__ for command in main.app.registered_commands}
    for file in [*package.rglob("*.py"), *package.rglob("*.sql"), package.parent / "docs" / "settings.md"]:
        named = set(re.findall(r"`pgtrickle ([a-z][a-z-]*)", file.read_text(encoding="utf-8")))
        assert named <= commands, file


def test_a_missing_lake_or_control_schema_is_made_by_apply():
    class NoSuchTableError(Exception):
        sqlstate = "42P01"

    place = LakeLocation("host=db dbname=d")
    assert "pgtrickle apply" in Connections(place.catalog_dsn).translate(NoSuchTableError("x")).hint
    with pytest.raises(LakeError, match="pgtrickle apply"):
        check_metadata({}, place)


def test_the_bundled_example_is_not_changed_without_being_named(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("PGTRICKLE_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    for arguments in (["create", "gold.x", "--query", "SELECT 1"], ["drop", "gold.served_routes"]):
        assert main.run(arguments) == 1
        assert "pgtrickle init" in capsys.readouterr().err


def test_commands_are_functions_that_documentation_can_read():
    assert "Example:" in (init.__doc__ or "")
