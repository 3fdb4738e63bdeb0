"""Facts about the README.

It is short, its commands exist, and the output that it shows is what the command prints. `python -m
tests.test_readme` runs the command and writes its output into the README.
"""

import re
import sys
import tempfile
from pathlib import Path

import pytest

from tests.fixtures.command_lines import parsed
from tests.fixtures.rows import table_row
from tools.walker import walk

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
COMMANDS = [
    command
    for block in walk.blocks(README)
    for command in block.commands
    if command.startswith("edgemeter ")
]
TARGETS = re.findall(r"^\$ make (\w+)", README.read_text(), re.MULTILINE)
# Output that depends on how busy the machine is: number of runs, reasons of a verdict, a wait,
# width of an interval.
PASSING = re.compile(
    r"^ *(\d+ runs?, |\d+ (of \d+ |disturbed )runs? |disturbed: |invalid: |note: |waited ).*\n| "
    r"± [\d.]+%| \([\d.,]+ to [\d.,]+\)",
    re.MULTILINE,
)


def printed() -> str:
    """Return the output of the README's command, in an empty home.

    It has the models and scenes that ship.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        walk.walk(Path(folder), EDGEMETER_DEVICE="this-machine") as reader,
    ):
        (command,) = compared_block().commands
        output = reader.run(command, "README.md")
    return "\n".join(line.rstrip() for line in output.rstrip().splitlines()) + "\n"


def compared_block() -> walk.Block:
    (block,) = (block for block in walk.blocks(README) if block.mark == "compared")
    return block


def normalised(output: str) -> list[list[str]]:
    """Return the words of each line, numbers and ids as #: what stays the same from run to run."""
    return [
        re.sub(r"\b[0-9a-f]{8}\b|\d[\d.,]*", "#", line).split()
        for line in PASSING.sub("", output).splitlines()
        if line.strip()
    ]


@pytest.mark.services
@pytest.mark.limit_s(600)
def test_the_output_shown_is_what_the_command_prints():
    """The output shown equals the command's after numbers are normalised.

    `python -m tests.test_readme` writes it anew.
    """
    assert normalised(compared_block().text.partition("\n")[2]) == normalised(printed())


def test_it_is_short():
    """The README has at most 450 words, output and table rules included."""
    assert len(README.read_text().split()) <= 450


def test_every_command_is_one_that_we_understand():
    """Every command has a group, a name and options that exist, with values that they take."""
    for line in COMMANDS:
        with table_row(line):
            parsed(line)


def test_every_make_target_exists():
    """Every make target exists in the Makefile; a fresh machine needs two of them."""
    makefile = (ROOT / "Makefile").read_text()
    assert set(TARGETS) == {"demo", "test"}
    assert all(f"\n{target}:" in makefile for target in [*TARGETS, "check", "bench", "docs"])


def main() -> None:
    """Write the output of the command into the README."""
    block = compared_block()
    command = block.text.partition("\n")[0]
    text = README.read_text()
    assert text.count(block.text) == 1
    README.write_text(text.replace(block.text, f"{command}\n{printed()}"))


if __name__ == "__main__":
    sys.exit(main())
