"""Facts about completion in a shell, as docs/install.md sets it up."""

from click.shell_completion import ShellComplete

from edgemeter.agent.cli.main import cli
from tests.fixtures.rows import table_row


def test_a_shell_completes_commands_options_sensors_models_and_files():
    """The last sensor of a list that is separated by commas is completed too."""
    for words, typed, completed in (
        ("", "doct", ("plain", "doctor")),
        ("run", "--annot", ("plain", "--annotations")),
        ("run --power", "rapl,pi5", ("plain", "rapl,pi5_pmic")),
        ("run", "edgemeter-shapes_int8.t", ("plain", "edgemeter-shapes_int8.tflite")),
        ("run -m", "own", ("file", "own")),
    ):
        with table_row(words, typed):
            items = ShellComplete(cli, {}, "edgemeter", "_EDGEMETER_COMPLETE").get_completions(
                words.split(), typed
            )
            assert completed in [(item.type, item.value) for item in items]
