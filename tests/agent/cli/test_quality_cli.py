"""Facts about `edgemeter models quality`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language"
needs_llama = pytest.mark.needs(module="xllamacpp")


def ask(*arguments):
    """Return what the command gave."""
    return CliRunner().invoke(cli, ["models", "quality", *map(str, arguments)])


@needs_llama
def test_a_quantised_file_is_compared_with_its_source():
    """The table has both files, each check is one sentence, and the status is that of the gate."""
    result = ask(
        "-m",
        SHIPPED / "edgemeter-notes_q8_0.gguf",
        "--unquantised",
        SHIPPED / "edgemeter-notes_f16.gguf",
        "--text",
        SHIPPED / "held_out.txt",
    )
    assert result.exit_code == 0, result.output
    assert "edgemeter-notes_q8_0.gguf" in result.stdout
    assert "edgemeter-notes_f16.gguf" in result.stdout
    assert result.stdout.rstrip().endswith("gate: passed")
