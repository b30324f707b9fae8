"""``kolumn explain``: what a read would do."""

from typing import Any

from kolumn.cli.common import OK, JsonInPipes, Sources, command, is_json, print_json, print_table
from kolumn.cli.read_options import PAYLOADS, READING, SELECTION, with_read_options
from kolumn.core.errors import shown


@command
@with_read_options(*SELECTION, *READING, *PAYLOADS)
def explain(sources: Sources, json: JsonInPipes = None, **options: Any) -> int:
    """Show the plan of a read without reading a payload: partitions and their copies, the bytes that are read and by what, and every file
    and folder that is left out, with the reason.

    Example: `kolumn explain --start-timestamp 2026-01-31 /var/lib/kafka/data/orders-0`
    """
    from kolumn.readers.explain import explain as planned

    plan = planned(sources, **options)
    tables = {"partition": plan.partitions, "range": plan.ranges, "leftOut": plan.left_out}
    if is_json(json):
        for name, table in tables.items():
            for row in table.to_pylist():
                print_json({"kind": name, **{key: shown(value) if isinstance(value, str) else value for key, value in row.items()}})
        return OK
    print(f"columns: {', '.join(plan.schema.names)}; decoded on the {plan.backend.upper()} by {plan.threads} threads")
    for title, table in (("Partitions", plan.partitions), ("Ranges", plan.ranges), ("Left out; what is named is read", plan.left_out)):
        if table.num_rows:
            print()
            print_table(title, table.schema.names, [list(row.values()) for row in table.to_pylist()])
    return OK
