"""Facts about `edgemeter models score --text`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language"


@pytest.mark.needs(module="xllamacpp")
def test_a_quantised_file_is_compared_with_its_source():
    """The table has both files, each check is one sentence, and the status is that of the gate."""
    quantised, source = (SHIPPED / f"edgemeter-notes_{precision}.gguf" for precision in ("q8_0", "f16"))
    arguments = (quantised, "--unquantised", source, "--text", SHIPPED / "held_out.txt")
    result = CliRunner().invoke(cli, ["models", "score", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert "edgemeter-notes_q8_0.gguf" in result.stdout
    assert "edgemeter-notes_f16.gguf" in result.stdout
    assert result.stdout.rstrip().endswith("gate: passed")
