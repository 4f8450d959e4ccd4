"""Changing the files of a project and registering what it then is, or leaving both as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pgtrickle_assets.cli.output import progress
from pgtrickle_assets.cli.workspace import Workspace, open_workspace
from pgtrickle_assets.errors import ConfigurationError, PgTrickleError
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.model import StreamTableStatus


def root_of(project: Project) -> Path:
    """The folder of a project."""
    if project.root is None:
        raise ConfigurationError(f"project {project.name} has no folder.")
    return project.root


def write_and_register(
    path: Path | None, workspace: Workspace, files: Mapping[str, str | None], name: str | None
) -> StreamTableStatus | None:
    """Writes (None: removes) files of the project and registers what it then is; the state of one stream table."""
    root = root_of(workspace.project)
    try:
        with _replaced({root / file: text for file, text in files.items()}):
            return _registered(path, name)
    except PgTrickleError:
        # With the files put back, what was registered of the others goes back too, as far as that can be done now.
        with suppress(PgTrickleError):
            _registered(path, None)
        raise


def _registered(path: Path | None, name: str | None) -> StreamTableStatus | None:
    workspace = open_workspace(path, believe_names=True, warn=False)
    with progress("Registering ..."), workspace.session() as session:
        lines = session.synced().status()
    return next((line for line in lines if str(line.name) == name), None)


@contextmanager
def _replaced(files: Mapping[Path, str | None]) -> Iterator[None]:
    """Writes or removes files; puts them back when what follows fails.

    Raises:
        ConfigurationError: A file cannot be written or removed.
    """
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    try:
        _put({path: None if text is None else text.encode() for path, text in files.items()})
        yield
    except BaseException:
        _put(before)
        raise


def _put(contents: Mapping[Path, bytes | None]) -> None:
    for path, content in contents.items():
        try:
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be changed: {error.strerror}.", hint="Give this user the right to write there."
            ) from error
