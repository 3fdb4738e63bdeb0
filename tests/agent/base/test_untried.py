"""Facts about runtimes and sensors that never ran on their hardware.

Three places say so, and go by one list.
"""

import io
import re
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent import power, runtimes
from edgemeter.agent.base import untried
from edgemeter.agent.base.console import Console
from edgemeter.agent.cli import run_output
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.doctor import checks
from edgemeter.agent.engine import loading
from edgemeter.agent.runtimes import Loaded
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row

INSTALL = Path(__file__).parents[3] / "docs" / "install.md"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "runtimes"
RUNTIMES = [entry for entry in untried.UNTRIED if entry.partition(" ")[0] in runtimes.RUNTIMES]


def test_the_list_names_runtimes_and_sensors():
    """Any other name would be a mistake; so far no sensor was tried on its board."""
    assert set(untried.UNTRIED) - set(RUNTIMES) == set(power.SENSORS) - {"replay"}


def test_the_table_of_what_was_tried_has_the_same_list():
    """The table's second column calls exactly the listed names untried."""
    rows = re.findall(r"^(`.+`) \| (.+)$", INSTALL.read_text(), re.MULTILINE)
    levels = {name: level for names, level in rows for name in re.findall(r"`(.+?)`", names)}
    assert {name for name, level in levels.items() if level.startswith("untried")} == set(
        untried.UNTRIED
    )


@pytest.mark.parametrize("entry", RUNTIMES)
def test_a_runtime_says_so_in_doctor_and_in_a_run(entry):
    """The record says so too, and nothing is said with another backend."""
    name, _, backend = entry.partition(" ")
    package = checks.RuntimePackage("numpy", "numpy", "vision")
    assert re.search(
        rf", untried(: (\w+, )*{backend}\b|$)", checks.library_finding(name, package, None).what
    )
    (model,) = (path for path in FIXTURES.glob(f"{name}.*") if path.suffix != ".bin")
    case = expand(
        SuiteFile(name="s", case=[Settings(model=str(model), runtime=name)]), Path()
    ).cases[0]
    for backend_of_run in filter(
        None, (backend and f"{backend},auto", backend or "any", backend and "cpu")
    ):
        loaded = Loaded("p", "1", backend_of_run, (), (), {}, 0, 0)
        run = msgspec.structs.replace(make_record(), runtime=loading.describe_runtime(case, loaded))
        out = io.StringIO()
        run_output.print_runs([run], Console(file=out, width=200))
        with table_row(backend_of_run):
            assert (f"is {untried.RUNTIME}" in out.getvalue()) == (backend_of_run != "cpu")


def test_a_sensor_says_so_wherever_it_is_described(tmp_path):
    """`doctor`, `energy sensors` and the record all show the sensor's description."""
    tree = {
        "sys/class/powercap/intel-rapl:0/energy_uj": "1",
        "sys/class/powercap/intel-rapl:0/name": "package-0",
    }
    for path, text in tree.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    assert untried.SENSOR in power.create("rapl", root=tmp_path).describe().warnings
