"""``kolumn tidy``: completes interrupted runs below a target, or removes what they staged."""

from dataclasses import asdict
from typing import Annotated

import typer

from kolumn.cli.common import FAILED, OK, Json, command, print_json
from kolumn.errors import escaped


@command
def tidy(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The target of a writer: a folder, or its URL.")],
    older_than_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Age from which staged files are removed if it is not known whether their run lives, as at URLs; by default 24."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be done.")] = False,
    json: Json = False,
) -> int:
    """Complete interrupted runs, or remove what they staged, in a target and in the topic-partition folders in it.

    Every writer does that for its own target when it runs again. Only files that Kolumn wrote are changed, and files staged by
    live runs are left. The exit code is 3 if something could not be done.

    Example: `kolumn tidy s3://backup/kafka`
    """
    import kolumn

    age = {} if older_than_hours is None else {"older_than_hours": older_than_hours}
    found = kolumn.tidy(target, dry_run=dry_run, **age)
    for one in found:
        if json:
            print_json(asdict(one))
        else:
            typer.echo(escaped(f"would be {one}" if dry_run and one.action not in ("left", "failed") else str(one)))
    if not found and not json:
        typer.echo("nothing to tidy")
    return FAILED if any(one.action == "failed" for one in found) else OK
