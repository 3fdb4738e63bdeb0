import click
import msgspec
from click.testing import CliRunner

from edgemeter.agent.cli import case_options
from edgemeter.agent.cli.case_options import CASE_OPTIONS, SHORT_MODES, SUITE_ONLY
from edgemeter.agent.cli.run import run
from edgemeter.agent.contract.case_settings import Settings
from tests.fixtures.rows import table_row


def _given(*words):
    """Return the options that a command of all keys of a case was given."""

    @click.command()
    @case_options.case_options(*CASE_OPTIONS)
    def command(**options):
        set_options = {key: value for key, value in options.items() if value is not None}
        click.echo(msgspec.json.encode(set_options, enc_hook=str))

    result = CliRunner().invoke(command, words)
    return msgspec.json.decode(result.stdout) if result.exit_code == 0 else result.stderr


def test_every_setting_is_an_option_of_run_or_left_to_suites():
    """A new key of suites becomes an option too, unless it is left out by name."""
    options = {option.name: option for option in run.params if isinstance(option, click.Option)}
    assert {*Settings.__struct_fields__} - {*options} == {"idle_seconds", "model", *SUITE_ONLY}
    assert options["data"].opts == ["-d", "--data"]
    assert options["rate_per_s"].opts == ["--rate"]
    assert all(options[key].help for key in CASE_OPTIONS)


def test_a_value_is_of_the_type_that_its_key_has():
    """Options take numbers, choices, paths, and lists whose parts are separated by commas."""
    for words, expected in [
        (("--threads", "4"), {"threads": 4}),
        (("--rate", "2.5"), {"rate_per_s": [2.5]}),
        (("--concurrency", "1,2,4"), {"concurrency": [1, 2, 4]}),
        (("--scenario", "offline"), {"scenario": "offline"}),
        (("-d", "photos"), {"data": "photos"}),
        (("--prompt-tokens", "128,512"), {"prompt_tokens": [128, 512]}),
        (("--cpus", "0"), {"cpus": [0]}),
        (
            ("--option", "kv_type=q8_0", "--option", "batch=64"),
            {"options": {"kv_type": "q8_0", "batch": "64"}},
        ),
    ]:
        with table_row(words):
            assert _given(*words) == expected
            assert msgspec.convert(expected, Settings)


def test_a_value_outside_the_limits_of_its_key_is_a_wrong_option():
    """The limits of a suite's keys hold on the command line too."""
    for words, says in [
        (("--threads", "1025"), "1<=x<=1024"),
        (("--seconds", "nan"), "not a finite number"),
        (("--seconds", "1e300"), "0<=x<=2592000"),
        (("--rate", "1e-9"), "0.001<=x<=1000000"),
        (("--cpus", "0,4096"), "0<=x<=4095"),
        (("--option", "kv_type"), "'kv_type' is not KEY=VALUE"),
        (("--mode", "fast"), "'rapid', 'quick', 'normal', 'full', 'sustained'"),
    ]:
        with table_row(words):
            assert says in _given(*words)


def test_a_command_may_change_what_differs_in_it():
    """A command may offer other modes than `run`, and the help stays the same."""

    @click.command()
    @case_options.case_options("mode", "seed", mode=SHORT_MODES)
    def command(**options):
        """Do nothing."""

    mode, seed = command.params
    assert mode.type.choices == ("rapid", "quick", "normal", "full")
    assert mode.help == "Length of a run. Default: quick (10 s)."
    assert seed.type.min == 0
