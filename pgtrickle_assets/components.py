"""A Dagster component, so that a `defs.yaml` of a `dg` project can serve stream tables.

type: pgtrickle_assets.StreamTables
attributes:
project: ../../../../my_project
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from pgtrickle_assets.build import build_definitions
from pgtrickle_assets.project import Project


class StreamTables(dg.Component, dg.Model, dg.Resolvable):
    """The stream tables of a project folder.

    Attributes:
        project: The folder that holds `pgtrickle.yaml`, absolute or relative to the component's folder.
    """

    project: str

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Builds the definitions of the project."""
        return build_definitions(Project.load(Path(context.path) / self.project))
