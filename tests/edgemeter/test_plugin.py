"""Facts about `edgemeter.plugin`.

Every name is there, and what a plug-in does not use is not imported.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter import plugin
from tests.fixtures.rows import table_row


def test_every_name_is_there():
    """Every name for each kind of plug-in is the very object that the agent uses."""
    for name in plugin.__all__:
        with table_row(name):
            assert getattr(plugin, name) is not None
    assert list(plugin.__all__) == sorted(plugin.__all__)
    kinds = {"Runtime", "PowerSensor", "Task", "Decoder", "Reader", "Generator"}
    assert kinds <= set(plugin.__all__) <= set(dir(plugin))
    with pytest.raises(AttributeError, match="no attribute 'Runtim'"):
        _ = plugin.Runtim


def test_a_type_checker_sees_the_same_names():
    """Imports for type checkers, listed names and places at run time are the same."""
    seen_by_checkers = {
        alias.asname or alias.name: f"{statement.module}:{alias.name}"
        for statement in ast.walk(ast.parse(Path(plugin.__file__).read_text()))
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("edgemeter.")
        for alias in statement.names
    }
    assert seen_by_checkers == plugin._PLACES
    assert set(plugin.__all__) == set(plugin._PLACES)


@pytest.mark.services
def test_a_sensor_imports_nothing_of_the_other_kinds():
    """A sensor imports nothing of other kinds of plug-ins.

    The process that measures imports it, and its cold start and memory are figures. `import
    edgemeter` alone imports nothing else.
    """
    code = (
        "import sys, edgemeter\n"
        "print([name for name in sys.modules if 'edgemeter.' in name or name in {'numpy', "
        "'click', 'msgspec'}])\n"
        "from edgemeter.plugin import Description, PowerSensor, Reading\n"
        "folders = {name.split('.')[2] for name in sys.modules if "
        "name.startswith('edgemeter.agent.')}\n"
        "print(sorted(folders & {'tasks', 'vision', 'datasets', 'generators', 'runtimes'}))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "[]\n[]\n"
