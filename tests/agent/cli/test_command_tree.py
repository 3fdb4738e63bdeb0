"""Facts about the tree of commands: few at the top, each page with an example that parses, old names that still work."""

import re
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import COMMANDS, RENAMED, cli
from tests.fixtures.command_lines import every_command, example_of, parsed
from tests.fixtures.rows import table_row

ROOT = Path(__file__).resolve().parents[3]
EVERY = {" ".join(path): command for path, command in every_command()}
# The table of the names itself, and files of the version before.
MAY_NAME_OLD = ("agent/cli/main.py", "tests/agent/cli/test_command_tree.py", "tests/fixtures/stored/")


def test_the_top_level_fits_in_a_head():
    """Seventeen commands at most, in sections, each with its line."""
    names = [name for section in COMMANDS.values() for name in section]
    assert cli.list_commands(click.Context(cli)) == names
    assert len(names) == len(set(names)) <= 17
    page = CliRunner().invoke(cli, ["--help"]).stdout
    assert [name for name in names if not re.search(rf"^  {name}  ", page, re.MULTILINE)] == []


def test_a_long_list_of_commands_has_sections():
    """More than twelve in one list are searched, not read."""
    for path in [path for path, command in EVERY.items() if isinstance(command, click.Group)]:
        with table_row(path):
            lists = CliRunner().invoke(cli, [*path.split(), "--help"]).stdout.partition("Options:")[2].split(":\n")[1:]
            assert max(len(re.findall(r"^  [a-z]", one, re.MULTILINE)) for one in lists) <= 12, path


def test_no_line_of_a_list_of_commands_is_cut():
    """A summary that ends in dots hides what the command does."""
    for path in [path for path, command in EVERY.items() if isinstance(command, click.Group)]:
        page = CliRunner().invoke(cli, [*path.split(), "--help"]).stdout
        assert [line for line in page.splitlines() if line.startswith("  ") and line.endswith("...")] == [], f"{path!r}"


def test_each_page_of_help_has_an_example_that_parses():
    """Of the command itself, or for a group of one below it; with options that exist and values that they take."""
    for path, command in EVERY.items():
        with table_row(path):
            page = CliRunner().invoke(cli, [*path.split(), "--help"])
            assert page.exit_code == 0, page.output
            assert "Example: edgemeter" in page.stdout
            example = example_of(command)
            # A flag that what is compared implies need not be written.
            assert example.startswith(f"edgemeter {path.removesuffix(' --models')}"), example
            assert parsed(example).command is command or isinstance(command, click.Group)


def test_an_old_name_does_what_the_new_one_does_and_says_so():
    """The same page of help, under the new name; one line on standard error."""
    for old, new in RENAMED.items():
        with table_row(old):
            found = CliRunner().invoke(cli, [*old.split(), "--help"], prog_name="edgemeter")
            assert found.exit_code == 0
            assert found.stderr == f"`edgemeter {old}` is now `edgemeter {new}`: the old name ends with the next release\n"
            assert found.stdout == CliRunner().invoke(cli, [*new.split(), "--help"], prog_name="edgemeter").stdout
            # A new name may end in an argument: `config sample alerts`.
            assert f"edgemeter {new} ".startswith(found.stdout.removeprefix("Usage: ").partition("[")[0])


def test_old_names_are_not_listed():
    """A reader learns the new ones only."""
    assert not set(RENAMED) & set(EVERY)


def test_no_text_names_an_old_command():
    """Neither messages nor documents nor tests: what they name is gone with the next release."""
    old = "|".join(sorted((name.replace(" ", r"\s+") for name in RENAMED), key=len, reverse=True))
    pattern = re.compile(rf"""edgemeter["']?,? +["']?(?:{old})\b(?![-/.=])""")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [
        f"{name}: {hit.group(0)}"
        for name in listed
        if not name.startswith(MAY_NAME_OLD)
        and (ROOT / name).suffix not in {".tflite", ".onnx", ".jpg", ".png"}
        and (ROOT / name).is_file()
        for hit in pattern.finditer((ROOT / name).read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize("group", ["trend --store x units", "doctor --broker b overhead"])
def test_an_option_before_a_subcommand_is_refused_not_lost(group):
    """With the place where it belongs."""
    with pytest.raises(click.UsageError, match=r"write --(store|broker) after the subcommand"):
        parsed(f"edgemeter {group}")
