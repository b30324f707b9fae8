"""All kernels as machine code, ahead of time: ``python -m kolumn.kernels.build FOLDER`` needs no GPU and no driver."""

import sys
from collections.abc import Iterable
from pathlib import Path

from kolumn.kernels import decode  # noqa: F401 (defines kernels)
from kolumn.kernels.columns import table  # noqa: F401 (defines kernels)
from kolumn.kernels.machine.image import ARCHITECTURES, OLDEST, cubin, ptx
from kolumn.kernels.machine.kernel import KERNELS, Kernel
from kolumn.kernels.values import columns  # noqa: F401 (defines kernels)


def load_all() -> dict[str, Kernel]:
    """Every kernel there is."""
    return KERNELS


def build(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write all kernels, or some, into a folder: PTX, and a cubin for each of `ARCHITECTURES`."""
    folder.mkdir(parents=True, exist_ok=True)
    known = load_all()
    for kernel in [known[name] for name in names or known]:
        source = folder / f"{kernel.name}.ptx"
        source.write_text(ptx(kernel, OLDEST))
        for arch in ARCHITECTURES:
            cubin(source, folder / f"{kernel.name}.sm_{arch}.cubin", arch)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
