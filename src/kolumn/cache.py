"""Where compiled code is kept from one process to the next, and what tells one version of it from another."""

import hashlib
import os
import tempfile
import warnings
from functools import cache
from importlib.resources import files
from pathlib import Path


@cache
def cache_folder() -> Path | None:
    """Writable folder of the machine code: KOLUMN_CACHE_DIR, else the user's cache folder, else one for temporary files."""
    named = os.environ.get("KOLUMN_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    places = [Path(named)] if named else [Path(home) / "kolumn", Path(tempfile.gettempdir()) / f"kolumn-{os.getuid()}"]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=place):
                return place
        except OSError:
            continue
    tried = ", ".join(map(str, places))
    warnings.warn(f"no writable cache folder ({tried}): compiling anew in every process takes seconds; set KOLUMN_CACHE_DIR", stacklevel=2)
    return None


@cache
def fingerprint(*names: str) -> str:
    """Digest of the source files of some modules and packages of Kolumn."""
    digest = hashlib.sha256()
    for name in names:
        # Not by path: the package may be in a zip, as Spark ships it.
        place = files("kolumn").joinpath(name)
        sources = [place] if place.is_file() else sorted(place.iterdir(), key=lambda file: file.name)
        for source in sources:
            if source.name.endswith(".py"):
                digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
