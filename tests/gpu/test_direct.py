"""kvikio, as far as there need be none: what its answers mean."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kolumn.kernels.machine import direct


@pytest.fixture
def kvikio(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Something in place of kvikio; its file gives ``bytes_read``, or raises it."""

    class CuFile:
        def __init__(self, path: str) -> None:
            self.path = path

        def __enter__(self) -> "CuFile":
            return self

        def __exit__(self, *error: object) -> None:
            stand_in.closed += 1

        def read(self, memory: Any, size: int, file_offset: int) -> int:
            stand_in.asked.append((self.path, size, file_offset))
            if isinstance(stand_in.bytes_read, Exception):
                raise stand_in.bytes_read
            return int(stand_in.bytes_read)

    stand_in: Any = ModuleType("kvikio")
    stand_in.CuFile, stand_in.bytes_read, stand_in.asked, stand_in.closed = CuFile, 0, [], 0
    stand_in.defaults = ModuleType("kvikio.defaults")
    stand_in.cufile_driver = ModuleType("kvikio.cufile_driver")
    for name in ("", ".defaults", ".cufile_driver"):
        monkeypatch.setitem(sys.modules, f"kvikio{name}", getattr(stand_in, name[1:]) if name else stand_in)
    direct.available.cache_clear()
    yield stand_in
    direct.available.cache_clear()


@pytest.mark.parametrize(("compat", "there", "expected"), [(False, True, True), (True, True, False), (False, False, False)])
def test_only_where_it_goes_past_the_host(kvikio: Any, compat: bool, there: bool, expected: bool) -> None:
    kvikio.defaults.is_compat_mode_preferred = lambda: compat
    kvikio.cufile_driver.get = lambda name: {"is_gds_available": there}[name]
    assert direct.available() is expected


def test_without_kvikio(kvikio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kvikio", None)
    assert not direct.available()


@pytest.mark.parametrize(
    ("answer", "worked"), [(1000, True), (999, False), (RuntimeError("no libcuda"), False), (OSError(5, "I/O"), False)]
)
def test_what_did_not_come_whole_is_left_to_the_host(kvikio: Any, answer: Any, worked: bool) -> None:
    kvikio.bytes_read = answer
    assert direct.load("/a.log", 4096, SimpleNamespace(size=1000)) is worked
    assert (kvikio.asked, kvikio.closed) == ([("/a.log", 1000, 4096)], 1)
