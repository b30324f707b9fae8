"""``kolumn schemas``: the schemas of a topic `_schemas`, of files, or of a registry."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.common import DAMAGE, OK, JsonInPipes, command, counted, is_json, print_json, print_table, say
from kolumn.cli.tables import note

if TYPE_CHECKING:
    from kolumn.values.schemas.schema import Collection, Registered, Schema


@command
def schemas(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A log directory with `_schemas-0`, that directory, a folder of .avsc, .proto or .json files, or a URL."
        ),
    ],
    id: Annotated[int | None, typer.Option(help="Print the text of the schema with this id.")] = None,
    json: JsonInPipes = None,
) -> int:
    """List schemas: subject, version, id, type, what they refer to, and whether they are deleted.

    The topic `_schemas` of a cluster is read from disk; no registry has to run. Records of it that are damaged or malformed are left
    out, and are counted on standard error.

    Example: `kolumn schemas /var/lib/kafka --id 7 > orders.avsc`
    """
    from kolumn.core.errors import ArgumentError
    from kolumn.values.schemas.open import schemas_of

    found = schemas_of(source)
    if id is None:
        _list(list(found.registered()), is_json(json))
    else:
        schema = found.by_id(id)
        if schema is None:
            raise ArgumentError(f"{source}: no schema has the id {id}")
        if json:
            print_json(_row(None, None, schema, None))
        else:
            typer.echo(schema.text)
    return _left_out(found)


def _list(rows: "list[Registered]", json: bool) -> None:
    if json:
        for one in rows:
            print_json(_row(one.subject, one.version, one.schema, one.is_deleted))
        return
    names = ["subject", "version", "id", "type", "references", "deleted"]
    print_table("", names, [_line(one) for one in rows])


def _line(one: "Registered") -> list[Any]:
    references = ", ".join(f"{ref.name} ({ref.subject} {ref.version})" for ref in one.schema.references)
    name = one.subject if one.subject is not None else "" if one.schema.id is not None else str(one.schema.guid or "")
    return [name, one.version, one.schema.id, one.schema.kind, references, "yes" if one.is_deleted else ""]


def _row(subject: str | None, version: int | None, schema: "Schema", is_deleted: bool | None) -> dict[str, Any]:
    row = {
        "subject": subject, "version": version, "id": schema.id, "guid": None if schema.guid is None else str(schema.guid),
        "schemaType": schema.kind,
        "references": [{"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references],
        "schema": schema.text, "deleted": is_deleted,
    }  # fmt: skip
    return {name: value for name, value in row.items() if value is not None or name in ("id", "guid")}


def _left_out(found: "Collection") -> int:
    """Print lines on standard error about what was left out of a topic. Returns the exit code."""
    from kolumn.values.schemas.topic import TopicSchemas

    if not isinstance(found, TopicSchemas):
        return OK
    if found.malformed:
        note(f"left out: {counted(found.malformed, 'record')} with a malformed key or value, or another schema's id")
    return say(found.skipped) or (DAMAGE if found.malformed else OK)
