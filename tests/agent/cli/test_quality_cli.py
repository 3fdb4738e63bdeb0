"""Facts about `edgemeter models quality`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.main import cli

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language"
needs_llama = pytest.mark.needs(module="xllamacpp")


def ask(*arguments):
    """Return what the command gave."""
    return CliRunner().invoke(cli, ["models", "quality", *map(str, arguments)])


@pytest.mark.slow
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


@needs_llama
def test_a_gate_that_is_not_passed_fails_the_command(tmp_path):
    """Against a source that answers all, a file that knows nothing fails, in JSON too."""
    fixture = Path(__file__).resolve().parents[2] / "fixtures" / "generators" / "llama.gguf"
    (tmp_path / "one.jsonl").write_text(
        '{"id": "1", "prompt": "Question: What does the ammeter measure? Answer:", "answers": ["electric current"]}\n'
    )
    result = ask("-m", fixture, "--unquantised", SHIPPED / "edgemeter-notes_f16.gguf", "--questions", tmp_path / "one.jsonl", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert [scored["quality"]["answers"]["f1"] > 0.5 for scored in document["files"]] == [False, True]
    assert document["gate"]["passed"] is False


def test_something_to_score_with_has_to_be_given():
    """A mistake of the user, and what to give."""
    result = ask("-m", SHIPPED / "edgemeter-notes_q8_0.gguf")
    assert isinstance(result.exception, ConfigError)
    assert "give a text (--text book.txt), --choices or --questions" in str(result.exception)
