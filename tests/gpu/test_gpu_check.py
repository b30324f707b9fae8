"""`bench/gpu_check.py`, the one command for a machine with a GPU: limits, order, what is kept, and what a lost context costs."""

import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from bench import gpu_check as check

ROOT = Path(__file__).resolve().parents[2]
FIRST_IS_LOST = (
    'p=Path(os.environ["PLACE"]); lost=not p.exists(); p.touch(); print("first" if lost else "went on", flush=True); os._exit(42 * lost)'
)


def step(name: str, code: str, limit: float = 20) -> check.Step:
    return check.Step(name, limit, [sys.executable, "-c", f"import os, sys, time\nfrom pathlib import Path\n{code}"])


def ended(folder: Path) -> list[str]:
    """Names and codes of the summary, in its order."""
    return [line.split("  ")[-1].split(" after")[0] for line in (folder / "summary.txt").read_text().splitlines()]


def test_groups_are_in_order_and_steps_side_by_side(tmp_path: Path) -> None:
    """Each of two waits for the other's file."""
    there = "Path({!r}).touch()\nwhile not Path({!r}).exists(): time.sleep(0.01)"
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    side = [step("one", there.format(a, b)), step("two", there.format(b, a))]
    after = [step("after", f"sys.exit(not (Path({a!r}).exists() and Path({b!r}).exists()))")]
    assert check.run([side, after], tmp_path, 30) == 0
    *first, third, last = ended(tmp_path)
    assert (sorted(first), third, last) == (["one: exit code 0", "two: exit code 0"], "after: exit code 0", "all is well")


def test_a_step_over_its_limit_ends_with_its_children(tmp_path: Path) -> None:
    """What it printed is kept, and the next step runs, if there is time."""
    child = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '60'])"
    began = time.monotonic()
    assert check.run([[step("slow", child, 1)], [step("next", "")]], tmp_path, 30) == 1
    assert time.monotonic() - began < 30
    assert ended(tmp_path) == ["slow: exit code -15", "next: exit code 0", "failed: slow"]
    assert "slow| begun\n" in (tmp_path / "log.txt").read_text()
    (later := tmp_path / "later").mkdir()
    assert (check.run([[step("late", "")]], later, 0), ended(later)) == (1, ["late: no time left", "failed: late"])


def test_a_lost_context_goes_on(tmp_path: Path) -> None:
    assert check.run([[step("corpus", FIRST_IS_LOST)]], tmp_path, 30) == 1
    assert ended(tmp_path) == ["corpus: exit code 42, 0", "failed: corpus"]
    assert (tmp_path / "log.txt").read_text() == "corpus| first\ncorpus| went on\n"


@pytest.mark.parametrize(("kernel", "code"), [("kolumn_check+0x10", 9), ("void nvcomp::unsnap_kernel+0x10", 0)])
def test_hazards_of_libraries_do_not_count(tmp_path: Path, kernel: str, code: int) -> None:
    race = f"print('========= Error: Race reported between Read access at {kernel}')"
    check.run([[step("racecheck", race)]], tmp_path, 30)
    assert ended(tmp_path)[0] == f"racecheck: exit code {code}"


def test_a_run_that_is_cut_off_keeps_what_it_had(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from bench.gpu_check import Step, run\n"
        "one = Step('one', 9, [sys.executable, '-c', 'print(1)'])\n"
        "two = Step('two', 60, [sys.executable, '-uc', 'import time; print(2); time.sleep(60)'])\n"
        f"run([[one], [two]], Path({str(tmp_path)!r}), 99)"
    )
    log = tmp_path / "log.txt"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while not log.exists() or "two| 2" not in log.read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()
        assert process.wait(20) == 1
    assert ended(tmp_path) == ["one: exit code 0", "cut off"]


def test_no_tool_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KOLUMN_FAKE_GPU", raising=False)
    assert (check.main(tmp_path / "out"), capsys.readouterr().out) == (3, "no GPU here (there is no nvidia-smi): nothing was run\n")


def test_files_whose_packages_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the step of the tests has failed, though all that could run did. The test kit's packages count too."""
    spec = spec_from_file_location("loaded_conftest", Path(__file__).with_name("conftest.py"))
    conftest = module_from_spec(spec)
    spec.loader.exec_module(conftest)
    monkeypatch.setattr(conftest, "_is_there", lambda module: module != "fastavro")
    assert conftest.lacking() == {
        "fastavro": ["test_early_columns.py", "test_nested_values.py", "test_ptx_budgets.py", "test_registry_values.py"]
    }
