"""The command line. Every command imports its modules when it runs, so that help is printed at once."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kolumn import __version__
from kolumn.cli import auditing, comparing, doctor, erasing, inspecting, keys, overview, reading, writing
from kolumn.cli.ending import OK, USAGE, USAGE_ERROR, Ended, exit_code_of, exit_code_of_typer, prepare_process, say
from kolumn.cli.help import PlainHelp
from kolumn.cli.hints import no_such_command
from kolumn.core.errors import escaped


class _Group(PlainHelp, TyperGroup):
    """Commands; a path in place of a command means `overview`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer's own way leaves printing this help to Rich.
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise Ended(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            # Other words than a path, a pattern or a URL are misspelt commands.
            if any(mark in word for mark in "/*?[") or word in (".", "..") or os.path.lexists(word):
                return super().resolve_command(ctx, ["overview", *args])
            say(escaped(no_such_command(word, [name for name, one in self.commands.items() if not one.hidden])))
            raise Ended(USAGE)
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


app = typer.Typer(
    name="kolumn",
    cls=_Group,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Query raw Apache Kafka log segments without a broker, even if they are damaged. `kolumn PATH` shows what is there.",
    epilog="Exit codes: 0 all is well, 1 damage was found, 2 wrong arguments, 3 it could not be done (something can't be read or "
    "written), 4 no damage, but intact batches over a limit (max-ratio, max-batch-bytes), 130 interrupted, 143 terminated. An incomplete "
    "file never gets its final name.",
)


class _Command(PlainHelp, TyperCommand):
    """A command whose usage line shows its arguments by their metavars: Typer puts brackets around some."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _escaped_names():
            return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(param.metavar or str(param.name).upper() for param in arguments)]


_COMMANDS = {
    "What is there": (overview.overview, inspecting.stats, inspecting.inspect, inspecting.space, overview.report, inspecting.columns),
    "Read records": (reading.cat, reading.sql, keys.history, keys.latest, reading.explain),
    "Write tables": (writing.to_parquet, writing.to_iceberg, writing.to_delta),
    "Check and recover": (inspecting.verify, auditing.audit, comparing.diff, writing.recover, writing.rebuild_index),
    "What the cluster knew": (inspecting.groups, inspecting.transactions, inspecting.schemas),
    "Write segments": (writing.convert, writing.compact, erasing.erase, writing.apply_retention, writing.tidy),
    "The installation": (doctor.doctor, doctor.warmup, doctor.jar),
}
for _title, _functions in _COMMANDS.items():
    for _function in _functions:
        app.command(_function.__name__.replace("_", "-"), cls=_Command, rich_help_panel=_title)(_function)
# Its name in version 0.1.
app.command("clean", cls=_Command, hidden=True, deprecated=True)(writing.apply_retention)


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
