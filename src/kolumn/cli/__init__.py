"""The command line. Every command imports its modules when it runs, so that help is printed at once."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kolumn import __version__
from kolumn.cli import (
    cat,
    compact,
    convert,
    doctor,
    explain,
    inspect,
    overview,
    recover,
    report,
    schemas,
    space,
    sql,
    stats,
    to_parquet,
    transactions,
    verify,
)
from kolumn.cli.ending import OK, USAGE_ERROR, Ended, exit_code_of, exit_code_of_typer, prepare_process
from kolumn.core.errors import escaped


class _Group(TyperGroup):
    """Commands; a path in place of a command means `overview`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and _is_source(args[0]):
            return super().resolve_command(ctx, ["overview", *args])
        with _escaped_names():
            return super().resolve_command(ctx, args)


@contextmanager
def _escaped_names() -> Iterator[None]:
    """Errors about arguments: a shell puts names of files among these."""
    try:
        yield
    except USAGE_ERROR as error:
        said: Any = error
        said.message = escaped(said.message)
        raise


def _is_source(name: str) -> bool:
    """Whether a word is a path, a pattern or a URL. Other words are misspelt commands."""
    return any(mark in name for mark in "/*?[") or name in (".", "..") or os.path.lexists(name)


app = typer.Typer(
    name="kolumn",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Raw Apache Kafka log segments in, columns out: no broker, no consumer, in spite of damage. `kolumn PATH` shows what is there.",
    epilog="Exit codes: 0 all is well, 1 damage was found, 2 wrong arguments, 3 it could not be done (something can't be read or "
    "written), 4 no damage, but intact batches over a limit (max-ratio, max-batch-bytes), 130 interrupted, 143 terminated. An incomplete "
    "file never gets its final name.",
)


class _Command(TyperCommand):
    """A command whose usage line shows its arguments by their metavars: Typer puts ``{…}...`` around each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _escaped_names():
            return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^[{\[](.*)[}\]]\.\.\.$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


for _name, _function in {
    "overview": overview.overview,
    "verify": verify.verify,
    "explain": explain.explain,
    "inspect": inspect.inspect,
    "cat": cat.cat,
    "stats": stats.stats,
    "to-parquet": to_parquet.to_parquet,
    "convert": convert.convert,
    "compact": compact.compact,
    "clean": compact.clean,
    "space": space.space,
    "report": report.report,
    "sql": sql.sql,
    "tidy": compact.tidy,
    "schemas": schemas.schemas,
    "groups": transactions.groups,
    "transactions": transactions.transactions,
    "rebuild-index": recover.rebuild_index,
    "recover": recover.recover,
    "columns": stats.columns,
    "jar": doctor.jar,
    "doctor": doctor.doctor,
    "warmup": doctor.warmup,
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
    except Ended as end:
        return end.code
    except SystemExit as end:
        return exit_code_of_typer(end.code)
    return OK
