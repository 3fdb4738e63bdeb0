"""Facts about the tree of commands.

Few commands are at the top, options mean the same everywhere, and each page of help has an example
that parses.
"""

import re

import click
import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from tests.fixtures.command import edgemeter
from tests.fixtures.command_lines import every_command, example_of, parsed
from tests.fixtures.rows import table_row

EVERY = {" ".join(path): command for path, command in every_command()}


def test_each_page_of_help_has_an_example_that_parses():
    """The example uses the command itself, with options and values that it takes.

    A group's example uses one of its commands.
    """
    for path, command in EVERY.items():
        with table_row(path):
            page = CliRunner().invoke(cli, [*path.split(), "--help"])
            assert page.exit_code == 0, page.output
            assert "Example: edgemeter" in page.stdout
            example = example_of(command)
            # A flag that what is compared implies need not be written.
            assert example.startswith(f"edgemeter {path}"), example
            assert parsed(example).command is command or isinstance(command, click.Group)


def test_each_page_of_help_fits_one_screen():
    """A terminal of 80 columns and 45 lines shows it without scrolling."""
    for path in ("", *EVERY):
        with table_row(path):
            page = CliRunner().invoke(cli, [*path.split(), "--help"], env={"COLUMNS": "80"}).stdout
            assert len(page.splitlines()) <= 45


def test_an_option_before_a_subcommand_is_refused_not_lost():
    """The error says where the option belongs."""
    with pytest.raises(click.UsageError, match=r"write --ledger after the subcommand"):
        parsed("edgemeter trend --ledger x units")


def test_a_piped_table_is_plain(tmp_path):
    """It has no rules, no trailing spaces, and one line a row however long that is."""
    for words in (["models", "list"], ["config", "variables"], ["config", "rules"]):
        with table_row(*words):
            lines = edgemeter(
                *words, env={"EDGEMETER_HOME": str(tmp_path), "COLUMNS": "80", "PATH": ""}
            ).stdout.splitlines()
            assert [
                line
                for line in lines
                if line != line.rstrip() or not {"─", "│", "━", "┃"}.isdisjoint(line)
            ] == []
            assert max(map(len, lines)) > 80


SHORT = {"--model": "-m", "--data": "-d", "--annotations": "-a", "--quiet": "-q", "--output": "-o"}
OPTIONS = [
    (" ".join(path), param)
    for path, command in every_command()
    for param in command.params
    if isinstance(param, click.Option)
]


def test_a_short_option_stands_for_one_long_one_everywhere():
    """A command has both options or neither, and the short one means nothing else."""
    for long, short in SHORT.items():
        with table_row(long):
            for path, option in OPTIONS:
                assert (long in option.opts) == (short in option.opts), path


def test_no_two_options_of_a_command_give_one_argument():
    """Otherwise the value of one option would overwrite that of the other."""
    for path, command in every_command():
        # Flags that choose one of several values share an argument by intent.
        names = [
            param.name
            for param in command.params
            if not isinstance(getattr(param, "flag_value", None), str)
        ]
        assert len(names) == len(set(names)), path


def test_a_name_is_a_flag_on_all_commands_or_on_none():
    """`--board NAME` on one command and `--board` on another would be two things."""
    visible = [option for _, option in OPTIONS if not option.hidden]
    for name in {name for option in visible for name in option.opts}:
        assert len({option.is_flag for option in visible if name in option.opts}) == 1, name


def test_a_format_is_chosen_by_one_option():
    """The option is `--format`, whose default is a table; no command has a flag for a format."""
    for path, option in OPTIONS:
        assert not {"--json", "--csv", "--markdown", "--latex"} & set(option.opts), path
        if "--format" in option.opts:
            assert (option.default, option.type.choices[0]) == ("table", "table"), path


def test_there_are_fourteen_commands_and_the_settings():
    """A command that is needed less stands below one of those at the top."""
    assert [*cli.list_commands(click.Context(cli))] == [
        "run", "accuracy", "benchmark", "energy", "doctor", "compare", "runs", "report", "trend",
        "references", "agent", "collector",
        "models", "fleet", "config",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["run", "compare"])
def test_the_help_of_a_long_command_shows_25_options_and_all_of_them_when_asked(name):
    """The options that `--help` leaves out work nevertheless."""
    pages = [CliRunner().invoke(cli, [name, flag]).stdout for flag in ("--help", "--help-all")]
    common, all_options = (
        {
            line.split()[-1 if "," in line[:8] else 0]
            for line in re.findall(r"^  (-\S.*?)(?:  |$)", page, re.MULTILINE)
        }
        for page in pages
    )
    assert len(common) <= 25
    assert common < all_options
    assert len(all_options) <= 46
    assert parsed(f"edgemeter {name} a.onnx b.onnx --fleet lab").params["fleet"] == "lab"
