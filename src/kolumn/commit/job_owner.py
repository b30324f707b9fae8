"""Owner of a staging folder. Many processes write into the folder of a Spark job, and one of them lives as long as the job does.

That process may be a JVM, which cannot hold a lock for us. Therefore a file names the process: its number, the time of its start, and
the machine's boot and namespace in which the number is valid. In another boot or namespace the folder's age decides.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "owner"


@dataclass(frozen=True)
class Owner:
    """A process: its number, the time of its start, and the boot and namespace in which the number is valid."""

    pid: int
    start: int
    namespace: str
    boot: str


def write_owner(folder: Path, jvm: bool) -> None:
    """Write the owner of a new folder into it: this process, or with ``jvm`` the JVM that started it, if there is one."""
    own = os.getpid()
    pid = next((pid for pid, name in _ancestors(own) if name == "java"), own) if jvm else own
    with suppress(OSError, ValueError):
        owner = Owner(pid, _start(pid), *_here())
        file = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as out:
            json.dump(asdict(owner), out)


def lives(folder: Path) -> bool | None:
    """Whether the owner of a folder lives; None if that is not known."""
    try:
        owner = Owner(**json.loads((folder / NAME).read_bytes()))
        if _here() != (owner.namespace, owner.boot):
            return None
    except (OSError, ValueError, TypeError):
        return None
    try:
        return _start(owner.pid) == owner.start
    except (OSError, ValueError):
        return False


def _here() -> tuple[str, str]:
    return os.readlink("/proc/self/ns/pid"), Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ancestors(pid: int) -> list[tuple[int, str]]:
    found = []
    with suppress(OSError, ValueError):
        while pid > 1:
            name, fields = _stat(pid)
            found.append((pid, name))
            pid = int(fields[1])
    return found


def _start(pid: int) -> int:
    state, *fields = _stat(pid)[1]
    # A process in state Z or X is dead, and its parent has not collected it yet.
    return -1 if state in "ZX" else int(fields[18])


def _stat(pid: int) -> tuple[str, list[str]]:
    """Name of a process, and the fields of proc(5) from the third on."""
    head, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], rest.split()
