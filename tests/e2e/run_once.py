"""One run in a process of its own: capture, refresh everything, print what was done. For tests that kill it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pgtrickle_assets.errors import StaleFrontierError
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.model import RefreshResult
from pgtrickle_assets.services.spark import spark_session
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable

_TRIES = 3


def project_of(config: dict[str, Any]) -> Project:
    """The project that a configuration describes."""
    return Project(
        [StreamTable(**table) for table in config["stream_tables"]],
        sources={"shop": {"dsn": config["source"]}},
        lake={"catalog": config["catalog"], "data_path": config["data_path"]},
        home=Path(config["home"]),
        name="test",
    )


def refreshed(engine: RefreshEngine, name: str, **request: Any) -> RefreshResult:
    """Refresh as a Dagster step does: once more where another run was faster."""
    for _ in range(_TRIES - 1):
        try:
            return engine.refresh(name, **request)
        except StaleFrontierError:
            sys.stdout.write("overtaken\n")
    return engine.refresh(name, **request)


def main() -> None:
    config = json.loads(sys.argv[1])
    settings = Settings(home=Path(config["home"]), ducklake_sink_failure_mode="error", **config.get("settings", {}))
    with RefreshEngine.open(project_of(config), settings, lambda: spark_session(settings)) as engine:
        engine.sync()
        if config.get("maintain"):
            sys.stdout.write(f"{json.dumps(engine.maintain().as_dict())}\ndone\n")
            return
        cut = engine.capture("child").cut if config.get("capture", True) else engine.head()
        only = config.get("only")
        for name in engine.project.order if only is None else only:
            result = refreshed(engine, name, partitions=config.get("partitions"), cut=cut, run_id="child")
            sys.stdout.write(json.dumps([name, result.strategy.value, result.snapshot]) + "\n")
            sys.stdout.flush()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
