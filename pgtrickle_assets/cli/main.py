"""Entry point of the `pgtrickle` command.

Exit status: 0 done, 1 failed, 2 wrong use. Errors are one line; `--debug` anywhere adds the traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from pgtrickle_assets.cli import changing, demonstration, inspecting, projects, refreshing, services, steering, upkeep
from pgtrickle_assets.cli.output import print_error
from pgtrickle_assets.errors import PgTrickleError

app = typer.Typer(
    name="pgtrickle",
    help="Stream tables for any PostgreSQL: Spark computes, DuckLake stores, Dagster runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (demonstration, projects, changing, refreshing, steering, inspecting, upkeep, services):
    _module.register(app)

_INTERRUPTED = 130
_OPTIONS_OF_COMMANDS = ("--project", "--json")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    status = run([argument for argument in given if argument != "--debug"], debug=debug)
    sys.stdout.flush()
    sys.exit(status)


def run(arguments: Sequence[str], *, debug: bool = False) -> int:
    """Runs a command and returns its exit status."""
    if debug:
        return _run(arguments, debug=True)
    with warnings.catch_warnings():
        # Spark and Dagster warn about things that a user of this command cannot change.
        warnings.simplefilter("ignore")
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        return _run(arguments, debug=False)


def _run(arguments: Sequence[str], *, debug: bool) -> int:
    try:
        status = app(args=list(arguments), standalone_mode=False)
    except TyperException as error:
        # What typer raises for wrong use; it keeps the class itself to itself.
        print_error(_usage_message(error), _usage_hint(error))
        return 2
    except (typer.Abort, KeyboardInterrupt):
        print_error("Interrupted.")
        return _INTERRUPTED
    except PgTrickleError as error:
        return _failed(error.message, error.hint, debug=debug)
    except Exception as error:  # noqa: BLE001 - the last place where an error can be made readable
        return _failed(f"{type(error).__name__}: {error}", "Run it again with --debug for the traceback.", debug=debug)
    return status if isinstance(status, int) else 0


def _failed(message: str, hint: str, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print_error(message, hint)
    return 1


def _usage_message(error: TyperException) -> str:
    described = getattr(error, "format_message", None)
    return str(error) if described is None else described()


def _usage_hint(error: TyperException) -> str:
    if getattr(error, "option_name", None) in _OPTIONS_OF_COMMANDS:
        return "Options follow the command, such as `pgtrickle status --project my_project`."
    context: typer.Context | None = getattr(error, "ctx", None)
    return f"See `{context.command_path if context is not None else 'pgtrickle'} --help`."


if __name__ == "__main__":
    main()
