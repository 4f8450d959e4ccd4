"""The project folder that `pgtrickle init` makes."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from pgtrickle_assets.project import Project

_SAMPLE: Final = "sample/source.sql"
_EMPTY_PROJECT: Final = """\
# Where the tables are. The secret stays in the environment.
sources:
  source:
    dsn: ${SOURCE_DSN}
"""


def write_skeleton(folder: Path, *, empty: bool) -> list[str]:
    """Writes a project.

    Args:
        folder: Where; made when missing. Nothing that exists is overwritten.
        empty: Without the example.

    Returns:
        The files, relative to the folder.

    Raises:
        ConfigurationError: When the folder holds a project already or cannot be written.
    """
    if (folder / "pgtrickle.yaml").exists():
        raise ConfigurationError(f"{folder} is a project already.", hint="Choose another folder.")
    skeleton = files("pgtrickle_assets.cli").joinpath("skeleton")
    texts = {name: entry.read_text(encoding="utf-8") for name, entry in _files_of(skeleton)}
    # A file whose name begins with a dot would be left out of the package.
    texts[".gitignore"] = texts.pop("gitignore")
    if empty:
        texts = {".gitignore": texts[".gitignore"], "pgtrickle.yaml": _EMPTY_PROJECT}
    try:
        for name, text in texts.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_text(text, encoding="utf-8")
        (folder / "stream_tables").mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be written: {error.strerror}.", hint="Choose another folder."
        ) from error
    return sorted(texts)


def load_sample(project: Project) -> None:
    """Loads the example's tables into the project's source, unless they are there."""
    from pgtrickle_assets.capture.connect import open_connection
    from pgtrickle_assets.connections import Connections, project_settings

    if project.root is None:
        return
    connections = Connections(project, project_settings(project))
    (source,) = project.sources
    with open_connection(connections.source_dsn(source).get_secret_value()) as connection:
        connection.execute("SET search_path = public")
        connection.execute((project.root / _SAMPLE).read_bytes())


def _files_of(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            found += _files_of(entry, f"{prefix}{entry.name}/")
        else:
            found.append((f"{prefix}{entry.name}", entry))
    return found
