"""Names of version 0.1 work for a version more, and warn."""

from operator import attrgetter
from pathlib import Path

import pytest

import kolumn
from kit.command_line import run
from kit.corpus import HERE as CORPUS
from kit.plain_spark import load
from kolumn.spark_plugin import DamageSource
from kolumn.spark_plugin.read.options import LoadOptions

LOG = CORPUS / "upgraded" / "upgraded-gzip-0"
NAMES = {"Cleaning": "Retention", "clean": "apply_retention", "assign_offsets": "broker.assign_offsets", "mirror": "broker.mirror"}


@pytest.mark.parametrize(("old", "new"), NAMES.items())
def test_functions(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"kolumn\.{old} is called kolumn\.{new} now"):
        found = getattr(kolumn, old)
    assert found is attrgetter(new)(kolumn)
    assert old not in dir(kolumn)


def test_options() -> None:
    with pytest.warns(DeprecationWarning, match="option 'keys' is called 'private_keys' now"):
        found = kolumn.read(LOG, keys={"key1": "no.pem"})  # type: ignore[call-arg]
    assert found.equals(kolumn.read(LOG, private_keys={"key1": "no.pem"}))
    with pytest.raises(kolumn.ArgumentError, match="keys"):
        kolumn.apply_retention(LOG, "out", retention_ms=1, keys={})  # type: ignore[call-arg]


def test_commands(tmp_path: Path) -> None:
    done, expected = (run(name, "--retention-ms", "0", LOG, tmp_path / name) for name in ("clean", "apply-retention"))
    assert (done.returncode, expected.returncode) == (0, 0)
    assert done.stderr.splitlines()[1:] == expected.stderr.splitlines()
    assert "deprecated" in done.stderr.splitlines()[0]
    assert "\n  clean" not in run("--help").stdout


def test_sources_of_spark() -> None:
    with pytest.warns(DeprecationWarning, match="option keys is called privateKeys now"):
        assert LoadOptions.of({"path": "x", "keys": "k=/p"}).decode == LoadOptions.of({"path": "x", "privateKeys": "k=/p"}).decode
    with pytest.warns(DeprecationWarning, match=r'format\("kolumn-damage"\) is called format\("kolumn"\).option\("table", "damage"\) now'):
        source = DamageSource({"path": str(LOG)})
    assert source.read_options == LoadOptions.of({"path": str(LOG), "table": "damage"})
    assert source.schema() == load(LOG, table="damage").schema
    with pytest.raises(kolumn.ArgumentError, match="unknown option 'table'"):
        source.writer(source.schema(), False)


def test_both_names_of_an_option_are_refused() -> None:
    with pytest.raises(kolumn.ArgumentError, match="unknown option 'keys'"):
        kolumn.read(LOG, keys={}, private_keys={})  # type: ignore[call-arg]
