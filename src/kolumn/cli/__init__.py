"""The command line. Every command imports what it needs when it runs, so that help comes at once."""

from typing import Annotated

import typer

from kolumn import __version__
from kolumn.cli import cat, columns, compact, convert, doctor, inspect, space, stats, to_parquet, verify

app = typer.Typer(
    name="kolumn",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Raw Apache Kafka log segments in, columns out: no broker, no consumer, in spite of damage.",
    epilog="Exit codes: 0 all is well, 1 damage was found, 2 wrong arguments, 3 something can't be read.",
)
app.command("verify")(verify.verify)
app.command("inspect")(inspect.inspect)
app.command("cat")(cat.cat)
app.command("stats")(stats.stats)
app.command("to-parquet")(to_parquet.to_parquet)
app.command("convert")(convert.convert)
app.command("compact")(compact.compact)
app.command("clean")(compact.clean)
app.command("space")(space.space)
app.command("columns")(columns.columns)
app.command("doctor")(doctor.doctor)


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
    app()
