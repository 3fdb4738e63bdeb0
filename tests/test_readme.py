"""Facts about the README: its commands exist, its suite reads, its tables name what is there."""

import re
from pathlib import Path

import pytest

from edgemeter.agent import power, runtimes
from edgemeter.agent.contract import suite
from tests.fixtures.command_lines import parsed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\$ (edgemeter .+?)(?:\s+#.*)?$", README, re.MULTILINE)
TARGETS = re.findall(r"^\$ make (\w+)", README, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one_that_we_understand(line):
    """Group, command and options exist, and take the values that stand there."""
    assert parsed(line).command is not None


def test_there_are_commands_to_check():
    """A README whose commands the pattern no longer finds would pass for nothing."""
    assert len(COMMANDS) >= 4
    assert set(TARGETS) == {"demo", "test"}


def test_every_make_target_exists():
    """What the README tells people to type is in the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in [*TARGETS, "check", "bench"])


def test_the_suite_in_it_reads(tmp_path):
    """The example expands to its five cases."""
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "suite.toml").write_text(text)
    assert len(suite.read(tmp_path / "suite.toml").cases) == 5


def rows(heading: str) -> set[str]:
    """Return the names in the first column of the table below a heading."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


def test_the_tables_name_every_plug_in():
    """A runtime or sensor without a row, or a row without one, is caught."""
    assert rows("Runtimes") == set(runtimes.RUNTIMES)
    assert rows("Power sensors") == set(power.SENSORS)


def test_every_path_that_it_names_exists():
    """Files and folders of ours that it points to are there."""
    named = set(re.findall(r"`((?:agent|collector|models|tests|provisioning)/[\w/.]*)`", README))
    missing = [path for path in named if not (ROOT / path).exists()]
    assert named
    assert missing == []
