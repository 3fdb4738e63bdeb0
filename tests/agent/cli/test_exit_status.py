"""Facts about how commands end: one table of exit statuses, which every command uses."""

import ast
import json
from pathlib import Path

import pytest

import edgemeter.agent.cli.main as main_module
from edgemeter.agent.base.errors import EXIT_STATUSES, FAILED
from tests.fixtures.command import edgemeter

ROOT = Path(main_module.__file__).resolve().parents[2]
WRONG_SENSOR = '[sensors.rapl]\nscopee = "1"\n'


def test_no_command_ends_with_a_number_of_its_own():
    """Every status has its name, and stands in the table that the reference shows."""
    for path in [*ROOT.glob("*/cli/*.py")]:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "sys.exit":
                assert not any(isinstance(part, ast.Constant) for part in ast.walk(call.args[0]) if part is call.args[0]), path
    assert sorted(EXIT_STATUSES) == [0, 1, 2, 130, 143]


@pytest.mark.services
def test_sensors_with_a_wrong_key_fail(tmp_path):
    """The list is printed, and a script sees that the configuration is wrong."""
    (tmp_path / "config.toml").write_text(WRONG_SENSOR)
    listed = edgemeter("sensors", "--config", tmp_path / "config.toml", "--json")
    assert listed.returncode == FAILED
    assert "has no setting 'scopee'" in next(row["error"] for row in json.loads(listed.stdout)["sensors"] if row["sensor"] == "rapl")
