"""What the first JSON values, or keys, of a source have in common."""

from dataclasses import replace
from typing import Any

from kolumn.core import keywords
from kolumn.damage.findings import Skipped
from kolumn.options import Options
from kolumn.readers.plan import plan_read
from kolumn.readers.types import first_values
from kolumn.values.json_inference import Inferred


def infer(source: keywords.Source, column: str, skipped: Skipped, where: str, **options: Any) -> Inferred:
    """The type of the first values, or keys, of the records that the options of a read choose; ``skipped`` gets what is damaged.
    `ArgumentError` if none of them is JSON; ``where`` is the option that names a type.
    """
    chosen = Options.of(**{f"{column}_format": "json", "errors": "skip", **options})
    (typed,) = chosen.typed
    plan = plan_read(source, replace(chosen, typed=(), columns=(column,)))
    return first_values(typed, plan.options, plan.ranges, skipped).inferred(where)
