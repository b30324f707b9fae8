"""``kolumn columns``: the record columns and their types."""

from kolumn.cli.common import JsonInPipes, command, is_json, print_json, print_table


@command
def columns(json: JsonInPipes = None) -> None:
    """List the record columns that `--columns` takes, and their Arrow types."""
    from kolumn.schema import DEFAULT_COLUMNS, RECORD_COLUMNS

    if is_json(json):
        for name, kind in RECORD_COLUMNS.items():
            print_json({"name": name, "type": str(kind), "default": name in DEFAULT_COLUMNS})
        return
    rows = [[name, str(kind), "yes" if name in DEFAULT_COLUMNS else ""] for name, kind in RECORD_COLUMNS.items()]
    print_table("", ["column", "type", "default"], rows)
