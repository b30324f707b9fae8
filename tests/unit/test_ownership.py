"""Machine code is used only from folders that nobody else can write to, and only if no function or constant in it has changed."""

import ast
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import kolumn
from kit.source_tree import modules, parsed
from kolumn.core import cache
from kolumn.core.cache import digest, file_objection, fingerprint, objection
from kolumn.cpu_fallback.machine import loops
from kolumn.kernels.machine import image

NOBODY = 65534


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make another user the owner of a path. Root changes the owner; other users seem to be another user, who owns the other paths."""
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: NOBODY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "above" / "cache"
    place.mkdir(mode=0o700, parents=True)
    return place


def test_who_may_write_to_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder above counts too unless it is sticky, and so does a group unless nobody else is in it."""
    assert objection(folder) is objection(folder / "not" / "there") is None
    for mode in (0o777, 0o757, 0o1777):
        folder.chmod(mode)
        assert objection(folder) == f"{folder} can be written by other users (mode {mode:04o})"
    folder.chmod(0o770)
    for is_private in (False, True):
        monkeypatch.setattr("kolumn.core.cache._is_private", lambda gid, given=is_private: given)
        assert ("other users" in str(objection(folder)), objection(folder) is None) == (not is_private, is_private)
    folder.chmod(0o700)
    folder.parent.chmod(0o777)
    assert str(objection(folder)).startswith(str(folder.parent))
    folder.parent.chmod(0o1777)
    assert objection(folder) is None
    give_away(folder, monkeypatch)
    assert "belongs to another user" in str(objection(folder))


def test_links(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is as safe as its target and its owner: in a sticky folder anybody can make a link."""
    link = tmp_path / "link"
    link.symlink_to("above/../above/cache")
    assert objection(link) is None
    folder.chmod(0o777)
    assert str(folder) in str(objection(link))
    folder.chmod(0o700)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "too many links" in str(objection(loop))
    give_away(link, monkeypatch)
    assert objection(link) is not None


def test_what_is_no_folder_and_files(folder: Path) -> None:
    (folder / "file").write_bytes(b"")
    assert objection(folder / "file") == f"{folder / 'file'} is not a folder"
    file = folder / "loop.code"
    file.write_bytes(b"")
    file.chmod(0o600)
    assert file_objection(folder) is None
    file.chmod(0o666)
    assert str(file_objection(folder)).startswith(str(file))
    file.unlink()
    file.symlink_to(folder / "elsewhere")
    assert "not a regular file" in str(file_objection(folder))


@pytest.fixture
def fresh() -> None:
    cache.cache_folder.cache_clear()
    cache._told.clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("named", ["KOLUMN_CACHE_DIR", "XDG_CACHE_HOME", None])
def test_a_planted_folder_is_refused(named: str | None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three places is refused if others can write to it, and a warning is given if there is no better place."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("KOLUMN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "no folder"))
    (tmp_path / "file").write_bytes(b"")
    third = tmp_path / f"kolumn-{os.getuid()}"
    third.mkdir(mode=0o777)
    third.chmod(0o777)
    if named is not None:
        monkeypatch.setenv(named, str(folder))
        (folder / "kolumn").mkdir()
        (folder / "kolumn").chmod(0o777)
        folder.chmod(0o777)
    with pytest.warns(UserWarning, match=f"no folder for machine code .*{third} can be written by other users"):
        assert cache.cache_folder() is None
    third.chmod(0o700)
    cache.cache_folder.cache_clear()
    is_told = named == "KOLUMN_CACHE_DIR"
    with pytest.warns(UserWarning, match=f"KOLUMN_CACHE_DIR is not used .*{folder}") if is_told else nullcontext():
        assert cache.cache_folder() == third


@pytest.mark.usefixtures("fresh")
def test_a_folder_that_can_only_be_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container image may contain machine code: it is used if it is for this machine; otherwise the user's own folder is used."""
    monkeypatch.setenv("KOLUMN_CACHE_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "_unwritable", lambda place: f"{place}: read-only" if place == folder else None)
    (folder / "this").mkdir()
    (folder / "this" / cache.READY).write_bytes(b"")
    assert cache.cache_folder("this") == folder / "this"
    with pytest.warns(UserWarning, match="KOLUMN_CACHE_DIR is not used .*read-only"):
        assert cache.cache_folder("another") == tmp_path / "home" / "kolumn" / "another"
    (folder / "this" / "loop.code").write_bytes(b"")
    (folder / "this" / "loop.code").chmod(0o666)
    cache.cache_folder.cache_clear()
    with pytest.warns(UserWarning, match=r"loop\.code can be written"):
        assert cache.cache_folder("this") == tmp_path / "home" / "kolumn" / "this"


PLANTED = """
import sys
from pathlib import Path
import numpy as np
from kolumn.cpu_fallback.fields import target
from kolumn.cpu_fallback.machine import loops
from kolumn.cpu_fallback.machine.arrays import Constants, Int64s
from kolumn.cpu_fallback.machine.emit import emit

def bang(source: Constants, target: Int64s, valid: int) -> int:
    target[0] = 666
    return 0

name = target.microseconds.name
place = Path(sys.argv[1], loops.version())
place.mkdir()
loops.write(place / loops.file_of(name), emit(bang, loops.entry_of(name)))
(place / "reading.ready").touch()
"""
USED = """
import sys, numpy as np
from kolumn.cpu_fallback.fields.target import microseconds
from kolumn.cpu_fallback.machine import compile_ahead, loops
compile_ahead.GROUPS = {"reading": ("fields.target",)}
target = np.zeros(1, np.int64)
microseconds(np.ones(1, np.int64), target, 0)
print(target[0], loops.folder())
"""


def test_planted_machine_code_does_not_run(folder: Path, tmp_path: Path) -> None:
    """The attack of a user of the same machine: wait for the folder's name, then put machine code there."""
    environment = {**os.environ, "KOLUMN_NATIVE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", PLANTED, str(folder)], env=environment, check=True)
    # An empty cache folder of the user, for the one loop: it alone is compiled.
    (tmp_path / "home").mkdir(mode=0o700)
    environment |= {"KOLUMN_CACHE_DIR": str(folder), "XDG_CACHE_HOME": str(tmp_path / "home")}

    def used() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", USED], env=environment, capture_output=True, text=True, check=True)

    assert used().stdout.split() == ["666", str(next(folder.iterdir()))]
    folder.chmod(0o777)
    answer = used()
    assert answer.stdout.startswith("1000 ")
    assert str(folder) not in answer.stdout
    assert "can be written by other users" in answer.stderr


PACKAGE = Path(kolumn.__file__).parent
SOURCES = {"cpu": loops.SOURCES, "gpu": image.SOURCES}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "kolumn", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize("backend", SOURCES)
def test_what_changes_it(backend: str, copy: Path) -> None:
    names = SOURCES[backend]
    seen = [digest(copy, *names)]
    assert seen == [fingerprint(*names, drafts=())]
    errors = copy / "core" / "errors.py"
    errors.write_text(errors.read_text().replace("TAG_COUNT = 55", "TAG_COUNT = 57"))
    seen.append(digest(copy, *names))
    (copy / "formats" / "inner_package").mkdir()
    (copy / "formats" / "inner_package" / "fields.py").write_text("LIMIT = 1\n")
    seen.append(digest(copy, *names))
    (copy / "formats" / "inner_package" / "fields.py").write_text("LIMIT = 2\n")
    seen.append(digest(copy, *names))
    (copy / "formats" / "v2.py").rename(copy / "formats" / "v2_renamed.py")
    seen.append(digest(copy, *names))
    assert len(set(seen)) == len(seen)
    (copy / "formats" / "__pycache__").mkdir()
    (copy / "formats" / "__pycache__" / "v2.pyc").write_bytes(b"")
    (copy / "api.py").write_text("")
    assert digest(copy, *names) == seen[-1]


@pytest.mark.parametrize("backend", SOURCES)
def test_nothing_compiled_comes_from_elsewhere(backend: str) -> None:
    """Compiled functions, and the constants beside them, contain no names from modules that the fingerprint leaves out."""
    inside = tuple(name.removesuffix(".py") for name in SOURCES[backend])
    found = 0
    for path in [path for path in modules() if f"{path.with_suffix('')}/".startswith(tuple(f"{part}/" for part in inside))]:
        used = frozen(parsed(path), is_scalar="formats" in path.parts)
        assert not used & from_outside(parsed(path), inside), path
        found += bool(used)
    assert found > 20


def from_outside(tree: ast.Module, inside: tuple[str, ...]) -> set[str]:
    """Names that a module imports from the parts of Kolumn that are not ``inside``."""
    parts = tuple(f"kolumn.{part.replace('/', '.')}." for part in inside)
    imports = [(node.module, one) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names]
    own = [(f"{module}.{one.name}.", one.asname or one.name) for module, one in imports if str(module).partition(".")[0] == "kolumn"]
    return {name for full, name in own if not full.startswith(parts)}


def frozen(tree: ast.Module, is_scalar: bool) -> set[str]:
    """Names in compiled functions of a module, and in the definitions of the constants among those."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    compiled = [one for one in functions if is_scalar or any(names_in(decorator) & _DECORATORS for decorator in one.decorator_list)]
    used = {name for one in compiled for line in one.body for name in names_in(line)}
    for one in reversed(tree.body):
        if isinstance(one, ast.Assign) and used & {name for target in one.targets for name in names_in(target)}:
            used |= names_in(one.value)
    return used


_DECORATORS = {"compiled", "register_jitable", "intrinsic", "instruction", "overload", "thread_per_item", "warp_per_item", "blocks"}


def names_in(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def test_the_test_above_can_fail() -> None:
    tree = ast.parse("from kolumn.options import LIMIT\n_LIMIT = 2 * LIMIT\n@compiled\ndef loop(a: int) -> int:\n    return a + _LIMIT\n")
    assert frozen(tree, is_scalar=False) & from_outside(tree, ("formats",)) == {"LIMIT"}
    assert not from_outside(tree, ("options",))
