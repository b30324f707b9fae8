"""All kernels as machine code, ahead of time: ``python -m kolumn.kernels.build FOLDER`` needs no GPU and no driver.

The code is in a folder that is named after the fingerprint of the sources. Folders for other sources are removed.
"""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from kolumn.core.cache import fingerprint
from kolumn.formats.layouts import EXTRA
from kolumn.kernels import decode, frame  # noqa: F401 (defines kernels)
from kolumn.kernels.columns import table  # noqa: F401 (defines kernels)
from kolumn.kernels.machine.image import ARCHITECTURES, OLDEST, SOURCES, cubin
from kolumn.kernels.machine.kernel import KERNELS, Kernel
from kolumn.kernels.machine.nvptx import ptx
from kolumn.kernels.values import columns  # noqa: F401 (defines kernels)


def load_all() -> dict[str, Kernel]:
    return KERNELS


def build(target: Path, names: Iterable[str] | None = None) -> Path:
    """Write all kernels, or some, into a folder of ``target``, which is returned: PTX, and a cubin for each of `ARCHITECTURES`."""
    folder = target / fingerprint(*SOURCES, drafts=EXTRA)
    for old in target.iterdir() if target.is_dir() else ():
        if old.is_dir() and old != folder:
            shutil.rmtree(old)
    # Under another name until it is complete.
    draft = target / f"{folder.name}.part"
    draft.mkdir(parents=True)
    known = load_all()
    for kernel in [known[name] for name in names or known]:
        source = draft / f"{kernel.name}.ptx"
        source.write_text(ptx(kernel, OLDEST))
        for arch in ARCHITECTURES:
            cubin(source, draft / f"{kernel.name}.sm_{arch}.cubin", arch)
    if folder.is_dir():
        shutil.rmtree(folder)
    return draft.rename(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
