"""The error family of the project.

Every error a user can meet is a `PgTrickleError`: one sentence on what happened and to which object, and a hint that
says what to do next. Whether a failed delivery is tried again is decided by type (`TransientError`), never by text.
"""

from __future__ import annotations

from collections.abc import Sequence


class PgTrickleError(Exception):
    """Root of all errors that are shown to the user as one line.

    Args:
        message: What happened, to which object, by name. Never holds a secret.
        hint: What to do next; empty when the message already says it.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return with_hint(self.message, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep errors picklable: they cross process borders between a Dagster step and its run."""
        return (_rebuild, (type(self), self.message, self.hint, dict(self.__dict__)))


def with_hint(message: str, hint: str) -> str:
    """A message and what to do next as sentences of their own."""
    message, hint = message.strip(), hint.strip()
    if message and hint and message[-1] not in ".?!:":
        message += "."
    return f"{message} {hint}".strip()


def _rebuild(kind: type[PgTrickleError], message: str, hint: str, state: dict[str, object]) -> PgTrickleError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigurationError(PgTrickleError):
    """A setting, a project file or an option block is wrong; nothing has run."""


class SourceLocationError(ConfigurationError):
    """A `ConfigurationError` that points into a file of the project.

    Args:
        message: What is wrong, naming the nearest valid name where there is one.
        path: File the user wrote, relative to the project where possible.
        line: 1-based line in that file, or None when the whole file is meant.
    """

    def __init__(self, message: str, *, path: str, line: int | None = None, hint: str = "") -> None:
        place = path if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {message}", hint=hint)
        self.path = path
        self.line = line


class QueryDataError(PgTrickleError):
    """A query fails on the rows that it reads, as it would in PostgreSQL: division by zero, a number out of range."""


class QueryError(PgTrickleError):
    """A defining query cannot be planned: syntax, unknown name, unsupported type or construct.

    Args:
        message: What is wrong.
        line: 1-based line inside the query text, or None.
    """

    def __init__(self, message: str, *, line: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.line = line


class UnsupportedTypeError(QueryError):
    """A column has a type, or a name, that the lake or Spark cannot carry."""


class SourceError(PgTrickleError):
    """A PostgreSQL source cannot be reached, read or prepared for capture."""


class SourceTableError(SourceError):
    """A source table is missing, or is of a kind whose changes cannot be captured."""


class SourcePrivilegeError(SourceError):
    """The role of a source lacks a right; the hint says which statement grants it."""


class SourceValueError(SourceError):
    """A stored value cannot be carried exactly; table, column and way out are named."""


class CaptureGapError(SourceError):
    """Changes of source tables since the captured position are not known: those tables must be copied again.

    Args:
        message: What happened.
        tables: Full names (`schema.table`) of the tables to copy; empty when all tables of the source are meant.
    """

    def __init__(self, message: str, *, tables: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.tables = tuple(tables)


class SourceReplacedError(CaptureGapError):
    """The database is not the one, or not the same history, that a captured position belongs to (restore, clone)."""


class SourceSchemaChangedError(CaptureGapError):
    """What capture was installed for changed: columns were dropped, renamed or retyped, or a unique key is gone."""


class LakeError(PgTrickleError):
    """The lake is in a state that we cannot read or write."""


class TransientError(PgTrickleError):
    """Trying again later can succeed: network, throttling, serialization, a lost race for a snapshot id."""


class SourceUnavailableError(TransientError, SourceError):
    """A source cannot be reached now, or did not answer in time."""


class SourceBusyError(TransientError, SourceError):
    """A lock on a source table was not granted in time; the message says who holds it."""


class LakeConflictError(TransientError, LakeError):
    """Another writer changed what a commit was planned on; plan again from the new head."""


class LakeUnavailableError(TransientError, LakeError):
    """The lake's catalog cannot be reached or did not answer in time."""


class StorageUnavailableError(TransientError, LakeError):
    """The storage of the lake's files did not answer, or refused for now, after all retries of its client."""


class LakeDeltaUnknownError(LakeError):
    """What changed in a table since a snapshot, or what it held then, cannot be told; read it as it is now."""


class LakeHistoryExpiredError(LakeDeltaUnknownError):
    """A snapshot that was asked for is no longer kept; read the whole table instead."""


class LakeDeletesUndatedError(TransientError, LakeDeltaUnknownError):
    """The lake does not tell which rows were deleted by a snapshot; it does for newer ones."""


class LakeTableReplacedError(LakeDeltaUnknownError):
    """A table or a column of it was dropped and created again, so it has no delta to its earlier state."""


class CommitStateUnknownError(TransientError, LakeError):
    """The connection was lost during COMMIT; the delivery id tells on the next attempt whether it landed."""


class DeliveryGivenUpError(LakeError):
    """A delivery failed as often as it may for reasons that can pass; the message has the last one."""


class ServiceError(PgTrickleError):
    """An embedded service (PostgreSQL, Java, DuckDB extension, Spark) is missing, does not start or does not answer."""


class SparkUnavailableError(TransientError, ServiceError):
    """The Spark that computes went away, or does not answer."""


class ControlError(PgTrickleError):
    """The control schema `pgtrickle` is missing or newer than this version, or does not allow what was asked."""


class StaleFrontierError(TransientError, ControlError):
    """Another run moved a frontier that a plan was built on; plan again from the stored one."""


class DeliveryOwnerLostError(TransientError, ControlError):
    """This process was taken for dead and its delivery given to another one; it must not commit any more."""
