"""The settings ``spark.kolumn.*``, and what is wrong with those of a session. `Settings.java` has the same list."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kolumn.core.errors import ArgumentError

PREFIX = "spark.kolumn."
DRIVERS_PYTHON = f"{PREFIX}driver.python"
"""The Python that plans, on the driver's machine."""


@dataclass(frozen=True)
class Setting:
    """What a setting may be. ``of_session``: SET may change it; others are read from the configuration of the SparkContext alone."""

    of_session: bool
    expected: str
    is_value: Callable[[str], object]


def _one_of(*values: str, old: str = "") -> Setting:
    return Setting(True, " or ".join(values), lambda text: text.lower() in (*values, *filter(None, [old])))


_SECONDS = Setting(False, "a number of seconds", lambda text: re.fullmatch("[0-9]{1,9}", text))
KNOWN = {
    f"{PREFIX}reader": _one_of("columnar", "python"),
    f"{PREFIX}handOver": _one_of("memory", "pipe", old="socket"),
    f"{PREFIX}reportPartitioning": _one_of("true", "false"),
    f"{PREFIX}rapids.keepPlan": _one_of("true", "false"),
    DRIVERS_PYTHON: Setting(False, "a Python", str.strip),
    f"{PREFIX}worker.idleSeconds": _SECONDS,
    f"{PREFIX}worker.timeoutSeconds": _SECONDS,
}


def refuse_wrong(settings: Mapping[str, str], context: Callable[[str], str | None] | None = None) -> None:
    """Raise `ArgumentError` for a setting that is not known or has a wrong value, or that differs from the ``context``'s and may not."""
    for name, value in sorted(settings.items()):
        if not name.lower().startswith(PREFIX):
            continue
        known = KNOWN.get(name)
        if known is None:
            nearest = get_close_matches(name, KNOWN, 1, 0)[0]
            raise ArgumentError(f"setting {name}: no such setting, the nearest is {nearest}")
        if not known.is_value(value):
            raise ArgumentError(f"setting {name}: expected {known.expected}, found {value!r}")
        if context is not None and not known.of_session and value != context(name):
            expected = context(name)
            raise ArgumentError(
                f"setting {name}: it belongs to the configuration that the SparkContext is started with (spark-submit --conf, "
                "spark-defaults.conf, or the builder of the first session), and a session or SET cannot change it; "
                f"expected {'none' if expected is None else repr(expected)}, found {value!r}. RESET {name} takes that back"
            )


def refuse_wrong_in(spark: SparkSession) -> None:
    """The same of a session; on Spark Connect the server has the rest, and compares."""
    try:
        context = spark.sparkContext.getConf().get
    except PySparkException:
        context = None
    refuse_wrong(spark.conf.getAll, context)
