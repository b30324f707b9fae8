"""The command line. Every command imports its modules when it runs, so that help is printed at once."""

import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kolumn import __version__
from kolumn.cli import cat, columns, compact, convert, doctor, inspect, jar, schemas, space, stats, tidy, to_parquet, verify, warmup
from kolumn.cli.ending import FAILED, OK, exit_code_of, prepare_process

app = typer.Typer(
    name="kolumn",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Raw Apache Kafka log segments in, columns out: no broker, no consumer, in spite of damage.",
    epilog="Exit codes: 0 all is well, 1 damage was found, 2 wrong arguments, 3 it could not be done (something can't be read or "
    "written), 130 interrupted, 143 terminated. Whatever ends a command, no half file has its final name.",
)


class _Command(TyperCommand):
    """A command whose usage line shows its arguments by their metavars: Typer puts ``{…}...`` around each."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^[{\[](.*)[}\]]\.\.\.$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


for _name, _function in {
    "verify": verify.verify,
    "inspect": inspect.inspect,
    "cat": cat.cat,
    "stats": stats.stats,
    "to-parquet": to_parquet.to_parquet,
    "convert": convert.convert,
    "compact": compact.compact,
    "clean": compact.clean,
    "space": space.space,
    "tidy": tidy.tidy,
    "schemas": schemas.schemas,
    "columns": columns.columns,
    "jar": jar.jar,
    "doctor": doctor.doctor,
    "warmup": warmup.warmup,
}.items():
    app.command(_name, cls=_Command)(_function)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kolumn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the ``kolumn`` script."""
    prepare_process()
    sys.exit(exit_code_of(_run))


def _run() -> int:
    """Exit code of the command in the arguments, or of an action of Typer itself, like help."""
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK
