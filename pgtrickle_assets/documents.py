"""YAML that the user wrote, read so that every mistake can be shown with its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pgtrickle_assets.errors import ConfigurationError, SourceLocationError
from pgtrickle_assets.suggestions import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed mapping with the line of each of its keys and items.

    Attributes:
        data: Plain Python values.
        path: File as shown to the user.
        lines: 1-based line in the file by location; `()` is the first line of the document.
    """

    data: dict[str, Any]
    path: str
    lines: Mapping[Location, int]

    def line(self, location: Iterable[str | int]) -> int:
        """The line of the location, or of the nearest thing around it."""
        wanted = tuple(location)
        while wanted and wanted not in self.lines:
            wanted = wanted[:-1]
        return self.lines.get(wanted, 1)

    def error(self, message: str, location: Iterable[str | int], *, hint: str = "") -> SourceLocationError:
        """An error that points at the location."""
        return SourceLocationError(message, path=self.path, line=self.line(location), hint=hint)


def read_text(file: Path, path: str) -> str:
    """The text of a file of the project, without the byte order mark that some editors put before it.

    Args:
        file: The file.
        path: File as shown to the user.

    Raises:
        SourceLocationError: It is a folder, leads nowhere, cannot be read or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceLocationError("the file is not UTF-8.", path=path, hint="Save it as UTF-8.") from error
    except IsADirectoryError as error:
        raise SourceLocationError(
            "this is a folder, where a file is expected.", path=path, hint="Rename or remove it."
        ) from error
    except FileNotFoundError as error:
        what = "this link leads to no file." if file.is_symlink() else "there is no such file."
        raise SourceLocationError(what, path=path, hint="Mend or remove it.") from error
    except OSError as error:
        raise SourceLocationError(f"the file cannot be read: {error.strerror or error}.", path=path) from error


def read_document(text: str, path: str, *, first_line: int = 1) -> Document:
    """Parses a YAML mapping.

    Args:
        text: YAML text; empty text is an empty mapping.
        path: File as shown to the user.
        first_line: Line of the file on which `text` starts.

    Raises:
        SourceLocationError: For broken YAML, a key that occurs twice, or anything but a mapping.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Location, int] = {(): first_line}
        if node is None:
            return Document({}, path, lines)
        if not isinstance(node, yaml.MappingNode):
            raise SourceLocationError("expected `name: value` lines.", path=path, line=first_line)
        _refuse_circles(node, (), path, first_line)
        _collect_lines(node, (), path, first_line, lines)
        return Document(loader.construct_document(node), path, lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark else 0)
        problem = error.problem or "cannot be read"
        raise SourceLocationError(f"not valid YAML: {problem}.", path=path, line=line) from error
    except (yaml.YAMLError, ValueError) as error:
        raise SourceLocationError(f"not valid YAML: {error}.", path=path, line=first_line) from error
    finally:
        loader.dispose()


def _refuse_circles(node: yaml.Node, around: tuple[yaml.Node, ...], path: str, first_line: int) -> None:
    """An alias may stand inside of what it names, and then there is no end to it."""
    if any(node is outer for outer in around):
        raise SourceLocationError(
            "not valid YAML: a value contains itself.", path=path, line=first_line + around[-1].start_mark.line
        )
    if isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for part in item if isinstance(item, tuple) else (item,):
                _refuse_circles(part, (*around, node), path, first_line)


def _collect_lines(node: yaml.Node, at: Location, path: str, first_line: int, lines: dict[Location, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = first_line + key.start_mark.line
            here = (*at, str(key.value))
            if here in lines:
                raise SourceLocationError(
                    f"{key.value!r} is given twice, first on line {lines[here]}.", path=path, line=line
                )
            lines[here] = line
            _collect_lines(value, here, path, first_line, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*at, index)] = first_line + item.start_mark.line
            _collect_lines(item, (*at, index), path, first_line, lines)


def validate(model: type[Model], document: Document) -> Model:
    """Builds `model` from the document.

    Raises:
        SourceLocationError: For the first mistake by line, naming the nearest valid name or the allowed values.
    """
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        problems = sorted(error.errors(), key=lambda item: document.line(_known(item["loc"], document)))
        message, hint = describe_problem(problems[0], model)
        raise document.error(message, _known(problems[0]["loc"], document), hint=hint) from error


def as_configuration_error(error: ValidationError, model: type[BaseModel], what: str) -> ConfigurationError:
    """The same message for something declared in Python rather than in a file."""
    message, hint = describe_problem(error.errors()[0], model)
    return ConfigurationError(f"{what}: {message}", hint=hint)


def describe_problem(problem: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """What is wrong and what to do, in the words of the options rather than of the validator."""
    location = problem["loc"]
    name = str(location[-1]) if location else ""
    where = ".".join(str(part) for part in location)
    value, context = problem.get("input"), problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            owner = _model_at(model, location[:-1])
            return f"unknown option {where!r}.", did_you_mean(name, _field_names(owner) if owner else ())
        case "literal_error":
            allowed = [word.strip(" '") for word in context["expected"].replace(" or ", ",").split(",")]
            return f"{where} cannot be {value!r}.", did_you_mean(str(value), allowed)
        case "missing":
            return f"{where} is missing.", ""
        case "value_error":
            return str(context["error"]), ""
        case _:
            return f"{where} cannot be {value!r}: {problem['msg']}.", ""


def _field_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    here: type[BaseModel] | None = model
    for part in location:
        if here is None:
            return None
        if isinstance(part, str) and part in here.model_fields:
            annotation = here.model_fields[part].annotation
            here = _model_in(annotation) or here
        # A key of a mapping or an index of a list: the model stays that of the values.
    return here


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _known(location: tuple[int | str, ...], document: Document) -> Location:
    # Validators of unions add their own names to a location; keep what the document has.
    known: Location = ()
    for part in location:
        if (*known, part) in document.lines:
            known = (*known, part)
    return known
