"""``kolumn warmup``: compiles machine code before it is needed."""

from dataclasses import asdict

from kolumn.cli.common import Json, command, print_json


@command
def warmup(json: Json = False) -> None:
    """Compile all machine code now instead of on first use, and print where it is kept: KOLUMN_CACHE_DIR, else your cache folder."""
    from kolumn.cpu_fallback.machine.compile_ahead import warmup

    done = warmup()
    if json:
        print_json({**asdict(done), "folder": str(done.folder)})
    else:
        print(done)
