"""The bundled example, played from nothing: load, refresh, change, refresh again, compare and print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgtrickle_assets.demo.report import DemoReport
    from pgtrickle_assets.demo.run import DemoOptions

__all__ = ["run_demo"]


def run_demo(options: DemoOptions) -> DemoReport:
    """Play the bundled example; see `pgtrickle_assets.demo.run.run_demo`."""
    from pgtrickle_assets.demo.run import run_demo as play

    return play(options)
