"""Help for eighty columns: options in groups, and no name that is cut. Typer's own has a column for each form of a name."""

from inspect import cleandoc
from typing import Protocol

import typer

from kolumn.cli.tables import wrapped

OUTPUT, SELECT, DAMAGE, VALUES, LIMITS = "Output", "Select records", "Damage and copies", "Typed values and keys", "Source and limits"
_WIDEST = 30  # columns of names, unless a text begins below them
_GROUPS = ("Arguments", "Options", OUTPUT, SELECT, DAMAGE, VALUES, LIMITS)


class _Formatter(Protocol):
    width: int

    def write(self, string: str) -> None: ...


class _Parameter(Protocol):
    name: str
    opts: list[str]
    secondary_opts: list[str]
    metavar: str | None
    param_type_name: str

    def get_help_record(self, ctx: object) -> tuple[str, str] | None: ...


class _Documented(Protocol):
    """A command or a group of Typer's, whose own types have no public names."""

    help: str
    epilog: str | None

    def get_params(self, ctx: object) -> list[_Parameter]: ...

    def format_usage(self, ctx: object, formatter: _Formatter) -> None: ...

    def format_options(self, ctx: object, formatter: _Formatter) -> None: ...


class PlainHelp:
    """Of a command of Typer's, which has the other methods."""

    def format_help(self: _Documented, ctx: object, formatter: _Formatter) -> None:
        self.format_usage(ctx, formatter)
        _write_text(formatter, self.help)
        self.format_options(ctx, formatter)
        _write_text(formatter, self.epilog)

    def format_options(self: _Documented, ctx: object, formatter: _Formatter) -> None:
        groups: dict[str, dict[str, list[str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            is_argument = param.param_type_name == "argument"
            group = groups.setdefault(getattr(param, "rich_help_panel", None) or ("Arguments" if is_argument else "Options"), {})
            like = param.name.replace("key_", "value_", 1)
            if param.name.startswith("key_") and like in group:
                group[like][0] += f", {_names(param)}"
            else:
                group[param.name] = [param.metavar or param.name.upper() if is_argument else _names(param), record[1]]
        for title in sorted(groups, key=_GROUPS.index):
            _write_rows(formatter, title, [(names, text) for names, text in groups[title].values()])
        commands: dict[str, list[tuple[str, str]]] = {}
        for command in getattr(self, "commands", {}).values():
            if not command.hidden:
                commands.setdefault(command.rich_help_panel, []).append((command.name, command.help.partition("\n\n")[0]))
        for title, rows in commands.items():
            _write_rows(formatter, title, rows)


def _names(param: _Parameter) -> str:
    names = ", ".join(sorted([*param.opts, *param.secondary_opts], key=lambda name: name.startswith("--")))
    return names if param.metavar is None else f"{names} {param.metavar}"


def _write_rows(formatter: _Formatter, title: str, rows: list[tuple[str, str]]) -> None:
    formatter.write(f"\n{typer.style(title, bold=True)}\n")
    longest = min(_WIDEST, max(len(names) for names, _ in rows))
    for names, text in rows:
        if len(names) > longest:
            formatter.write(f"  {names}\n")
        _write(formatter, f"  {names if len(names) <= longest else '':{longest}}  ", text)


def _write_text(formatter: _Formatter, text: str | None) -> None:
    for paragraph in cleandoc(text).split("\n\n") if text else ():
        formatter.write("\n")
        if paragraph.startswith("Example: "):
            # On one line, so that it can be copied.
            formatter.write(f"  {paragraph.replace('`', '')}\n")
        else:
            _write(formatter, "  ", paragraph)


def _write(formatter: _Formatter, label: str, text: str) -> None:
    """Write a text, which is Markdown, after a label and below itself; no word is cut."""
    # Some versions of Typer escape brackets for Rich.
    plain = " ".join(text.replace("`", "").replace("\\[", "[").split())
    formatter.write("".join(f"{line}\n" for line in wrapped(label, plain, formatter.width)))
