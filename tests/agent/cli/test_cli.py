"""Facts about the command line."""

from unittest.mock import Mock

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli import main
from tests.fixtures.command import edgemeter as run
from tests.fixtures.rows import in_folders, table_row


def test_wrong_usage_is_one_line_that_names_what_to_correct(tmp_path):
    """The command exits with status 2 and without a traceback.

    A misspelt file is reported with the nearest name in its folder.
    """
    for name in ("detector_fp32.tflite", "detector_fp32.tflite.toml"):
        (tmp_path / name).touch()
    for folder, arguments, says in in_folders(
        tmp_path,
        [
            (("run",), "SUITE"),
            (("run", str(tmp_path / "detector_fp23.tflite")), "detector_fp32.tflite"),
            (("run", "none.xyz"), "none.xyz"),
            (("run", "a.onnx", "b.onnx", "--name", "x"), "--name"),
            (("run", "edgemeter-shapes_int9.tflite"), "edgemeter-shapes_int8.tflite"),
            (("run", "yolox-nano"), "edgemeter models fetch yolox-nano"),
            (("run", "instances.json"), "--annotations"),
            (("frobnicate",), "frobnicate"),
            (
                ("models", "show"),
                "edgemeter: missing argument 'MODEL' (see edgemeter models show --help)",
            ),
            (("energy", "sensors", "read", "rapll"), "rapll"),
            (("doctor", "--config", "none.toml"), "none.toml"),
            (("agent", "publish"), "broker"),
            (("run", "x.replay.json", "--device", "Küche"), "Küche"),
            (
                ("agent", "publish", "--broker", "b", "--delivery-timeout", "nan"),
                "--delivery-timeout",
            ),
            (
                ("agent", "up", "--broker", "mqtts://u@b?password_file=none"),
                "password file 'none' of the broker",
            ),
            (("agent", "publish", "--broker", "mqtts://b?ca=none.pem"), "none.pem"),
            (
                ("agent", "publish", "--broker", "mqtts://b?certificat=none.pem"),
                "did you mean certificate?",
            ),
        ],
    ):
        with table_row(arguments):
            result = run(*arguments, cwd=folder)
            assert (result.returncode, result.stdout) == (2, "")
            assert says in result.stderr
            assert "Traceback" not in result.stderr
            assert len(result.stderr.strip().splitlines()) == 1


def test_an_error_cannot_steer_the_terminal(monkeypatch, capsys):
    """An error may quote escape sequences and lone surrogates from a file."""
    monkeypatch.setattr(
        main, "cli", Mock(main=Mock(side_effect=ConfigError("\x1b]0;x\x07 \ud800 stays")))
    )
    with pytest.raises(SystemExit):
        main.main([])
    assert capsys.readouterr().err == "edgemeter: \ufffd]0;x\ufffd \ufffd stays\n"
