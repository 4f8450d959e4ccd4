"""The code location: the project that `PGTRICKLE_PROJECT` names, or the bundled example."""

from pgtrickle_assets.build import build_definitions
from pgtrickle_assets.project import load_configured_project

defs = build_definitions(load_configured_project())
