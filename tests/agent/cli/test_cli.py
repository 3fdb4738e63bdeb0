"""Facts about the command line."""

import json
import subprocess
import sys
from unittest.mock import Mock

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli import main
from tests.fixtures.command import edgemeter as run
from tests.fixtures.rows import in_folders, table_row

HEAVY = (
    "numpy",
    "msgspec",
    "ai_edge_litert",
    "onnxruntime",
    "torch",
    "PIL",
    "rich",
    "paho",
    "amqtt",
    "influxdb_client",
    "psutil",
)


def test_help_imports_nothing_heavy():
    """`edgemeter --help` names every command without importing numpy, a runtime or a group."""
    code = (
        "import sys; from edgemeter.agent.cli.main import main\ntry: main(['--help'])\nfinally: print(sorted(sys.modules), file=sys.stderr)"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"'{name}'" not in completed.stderr for name in HEAVY)
    assert "'edgemeter.collector" not in completed.stderr
    for command in ("run", "doctor", "config", "energy", "compare", "demo", "collector", "models"):
        assert f"\n  {command}" in completed.stdout


def test_help_schema_and_version_are_printed():
    """The first with an example (the pages of all other commands are checked in `test_command_tree.py`), the second as JSON."""
    assert "Example: edgemeter" in run("--help").stdout
    assert json.loads(run("config", "schema").stdout)["title"] == "Edgemeter run record"
    assert run("--version").stdout.startswith("edgemeter, version ")


def test_a_misspelt_file_is_reported_with_the_nearest_name(tmp_path):
    """The file of nearly that name in the same folder."""
    for name in ("detector_fp32.tflite", "detector_fp32.tflite.toml"):
        (tmp_path / name).touch()
    result = run("run", "--model", tmp_path / "detector_fp23.tflite")
    assert result.returncode == 2
    assert "did you mean detector_fp32.tflite?" in result.stderr


def test_wrong_usage_is_one_line_with_the_remedy(tmp_path):
    """No traceback; status 2."""
    user, ca = tmp_path / "user.toml", tmp_path / "ca.toml"
    user.write_text('broker_user_file = "none"\n')
    ca.write_text('broker_ca_file = "none.pem"\n')
    for folder, arguments, says in in_folders(
        tmp_path,
        [
            (("run",), "give either one SUITE file (.toml) or models"),
            (("run", "--model", "none.tflite"), "there is no model at"),
            (("run", "--model", "none.xyz"), "there is no model 'none.xyz', neither as a file nor in the catalogue"),
            (("run", "a.onnx", "b.onnx", "--name", "x"), "--name belongs to one model, 2 are given"),
            (("run", "edgemeter-shapes_int9.tflite"), "did you mean edgemeter-shapes_int8.tflite"),
            (("run", "yolox-nano"), "fetch it with `edgemeter models fetch yolox-nano`"),
            (("run", "none.toml"), "cannot read the suite 'none.toml': No such file"),
            (("frobnicate",), "no command is called 'frobnicate': there are "),
            (("doctor", "--config", "none.toml"), "cannot read the configuration 'none.toml'"),
            (("agent", "publish"), "no broker is named"),
            (("run", "--model", "x.replay.json", "--device", "Küche"), "'Küche' is not a valid device name"),
            (("agent", "up", "--broker", "b", "--fleet", "x" * 129), "is not a valid fleet name"),
            (("agent", "publish", "--broker", "b", "--delivery-timeout", "nan"), "'nan' is not a finite number"),
            (("agent", "up", "--broker", "mqtts://b", "--config", str(user)), "cannot read the broker user"),
            (("agent", "publish", "--broker", "mqtts://b", "--config", str(ca)), "none.pem'"),
        ],
    ):
        with table_row(arguments):
            result = run(*arguments, cwd=folder)
            assert (result.returncode, result.stdout) == (2, "")
            assert says in result.stderr
            assert "Traceback" not in result.stderr
            assert len(result.stderr.strip().splitlines()) == 1 or result.stderr.startswith("Usage:")


def test_an_error_cannot_steer_the_terminal(monkeypatch, capsys):
    """It may quote what a file holds: escape sequences and halves of surrogate pairs."""
    monkeypatch.setattr(main, "cli", Mock(main=Mock(side_effect=ConfigError("\x1b]0;x\x07 \ud800 stays"))))
    with pytest.raises(SystemExit):
        main.main([])
    assert capsys.readouterr().err == "edgemeter: \ufffd]0;x\ufffd \ufffd stays\n"
