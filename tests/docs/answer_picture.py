"""README's picture: the shipped models measured in turn on this machine, as `edgemeter compare` prints it.

python -m tests.docs.answer_picture    measures them and writes docs/images/answer.svg (some minutes; close what else runs)
"""

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from tests.fixtures.own_imports import ROOT

PICTURE = ROOT / "docs" / "images" / "answer.svg"
COMMAND = "compare model.tflite model_int8.tflite --data photos/ --annotations instances.json --mode rapid"
FONT_SIZE, LINE_HEIGHT, MARGIN = 14, 20, 16
CHARACTER_WIDTH = 0.61 * FONT_SIZE  # A little more than that of the usual fixed-width fonts.
STYLE = """
    rect { fill: #f6f8fa }
    text { fill: #1f2328; font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
    @media (prefers-color-scheme: dark) { rect { fill: #161b22 } text { fill: #e6edf3 } }
  """


def answer() -> list[str]:
    """Return the lines that the command prints; raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        edgemeter = [sys.executable, "-m", "edgemeter.agent.cli.main"]
        subprocess.run([*edgemeter, "models", "sample", folder], check=True, stdout=subprocess.DEVNULL)
        command = [*edgemeter, *COMMAND.split(), "--no-save"]
        return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def picture_of(lines: list[str]) -> str:
    """Return a picture of lines of a terminal, in the colours of the reader's scheme."""
    width = round(2 * MARGIN + CHARACTER_WIDTH * max(map(len, lines)))
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    texts = "\n".join(
        f'  <text x="{MARGIN}" y="{MARGIN + LINE_HEIGHT * number + FONT_SIZE}">{escape(line)}</text>' for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'  <style>{STYLE}</style>\n  <rect width="{width}" height="{height}" rx="6"/>\n{texts}\n</svg>\n'
    )


def main() -> None:
    """Measure, and write the picture with the command above its answer."""
    Path(PICTURE).write_text(picture_of([f"$ edgemeter {COMMAND}", *answer()]), encoding="utf-8")


if __name__ == "__main__":
    main()
