"""Walks through a page of the documentation as its reader would.

Its files are written and its commands run in order, in an empty home.

A block of the language `console` is run line by line (`$ ...`), unless there is a comment right
before it:

    <!-- not run: why -->         it needs hardware, a network, root, or an hour
    <!-- until stopped -->        it runs until the walk ends, in the background
    <!-- exits 1 -->              its last command ends with this status

A block with a title (```toml title="suite.toml") is a file that the reader writes; python without
one is run. The reader starts in the folder that `edgemeter models sample` writes.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgemeter.models.catalogue.shipped_models import write_sample

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>not run: [^\n]+?|until stopped|exits \d+|compared) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?: "
    r"title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
INSTALL = re.compile(
    r"^Install: `pip install 'edgemeter\[([a-z0-9,]+)\]'` \(\[[^\]]+\]\(\.\./install\.md\)\)\.",
    re.MULTILINE,
)
LIMIT_S = 590.0


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: its line, its mark (empty without one), language, title and text."""

    line: int
    mark: str
    language: str
    title: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Return what follows the prompts; a line that ends in a backslash goes on in the next."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [
            re.sub(r"\s{2,}#.*$", "", line[2:])
            for line in joined.splitlines()
            if line.startswith("$ ")
        ]

    @property
    def typed(self) -> list[str]:
        """Return the text that the reader types into a shell for this block.

        It is its commands, a file with its content, or a script.
        """
        if self.title:
            return [f"cat > {self.title} <<'END'\n{self.text}END"]
        if self.mark.startswith("not run"):
            return []
        return {"console": self.commands, "python": [f"python - <<'END'\n{self.text}END"]}.get(
            self.language, []
        )


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            text.count("\n", 0, fence.start()) + 1, fence["mark"] or "", fence["language"],
            fence["title"] or "",
            re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE),
        )
        for fence in FENCE.finditer(text)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the reader typed: its output, and how long it took.

    `log` is what it prints until the walk ends.
    """

    typed: str
    printed: str = ""
    seconds: float | None = None
    log: Path | None = None


class Walk:
    """A reader with an empty home and a folder in it.

    `replaced` maps names of examples (broker.example) to what stands in for them. `programs` is the
    folder of the reader's `edgemeter` and `python`; without it they are those of the tests.
    """

    def __init__(
        self,
        folder: Path,
        replaced: dict[str, str] | None = None,
        programs: Path | None = None,
        **environment: str,
    ) -> None:
        self.home = folder / "home"
        self.folder = self.home / "trial"
        self.steps: list[Step] = []
        self.replaced = replaced or {}
        self.programs = programs or _own_programs(folder / "bin")
        self._running: list[subprocess.Popen[bytes]] = []
        self.home.mkdir(parents=True)
        write_sample(self.folder)
        # An environment of its own must not see the packages of the tests.
        names = (
            ("PYTHONPATH", "TMPDIR", "EDGEMETER_RUN_LOCK")
            if programs is None
            else ("TMPDIR", "EDGEMETER_RUN_LOCK")
        )
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        path = f"{self.programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        self._environment = {
            **inherited,
            "PATH": path,
            "HOME": str(self.home),
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
            **environment,
        }

    def page(self, page: Path) -> str:
        """Do what the page says, and return what was printed to standard output.

        Raises:
            AssertionError: a command ended with another status than expected; what it printed is in
                the message.
        """
        printed = []
        for block in blocks(page):
            for typed in block.typed:
                if block.mark == "until stopped":
                    self._start(typed)
                    continue
                is_last = typed == block.typed[-1]
                status = (
                    int(block.mark.removeprefix("exits "))
                    if block.mark.startswith("exits") and is_last
                    else 0
                )
                printed.append(self.run(typed, f"{page.name}:{block.line}", status))
        return "".join(printed)

    def run(self, typed: str, where: str = "", status: int = 0) -> str:
        """Return what a command printed to standard output.

        Raises:
            AssertionError: its status is another one.
        """
        began = time.monotonic()
        completed = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._text(typed)],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
            timeout=LIMIT_S,
        )  # fmt: skip
        self.steps.append(
            Step(typed, completed.stderr + completed.stdout, time.monotonic() - began)
        )
        assert completed.returncode == status, (
            f"{where}: $ {typed}\nstatus {completed.returncode}\n{completed.stdout}\n"
            f"{completed.stderr}"
        )
        assert "Traceback" not in completed.stderr, f"{where}: $ {typed}\n{completed.stderr}"
        return completed.stdout

    def _text(self, text: str) -> str:
        for name, value in self.replaced.items():
            text = text.replace(name, value)
        return text

    def _start(self, command: str) -> None:
        log = self.home.parent / f"log-{len(self._running)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {self._text(command)}"],
                cwd=self.folder,
                env=self._environment,
                stdout=file,
                stderr=file,
            )
        self._running.append(process)
        self.steps.append(Step(command, log=log))
        deadline = time.monotonic() + LIMIT_S
        # Each of ours says so once it listens or is connected.
        while not re.search(
            rb"receiving from|agent of|http://|connected|stop with Ctrl-C|serving the "
            rb"fleet|mosquitto version|Mosquitto should not",
            log.read_bytes(),
        ):
            assert process.poll() is None, f"$ {command}\n{log.read_text()}"
            assert time.monotonic() < deadline, f"$ {command}\n{log.read_text()}"
            time.sleep(0.05)

    def warnings(self) -> list[str]:
        """Return the lines in which what runs until stopped warns of something."""
        lines = [
            line for log in self.home.parent.glob("log-*") for line in log.read_text().splitlines()
        ]
        return [line for line in lines if line.startswith("WARNING")]

    def stop(self) -> None:
        """End what runs until stopped, the latest first."""
        for process in reversed(self._running):
            process.terminate()
            process.wait(100)


def _own_programs(folder: Path) -> Path:
    folder.mkdir()
    for name, command in (
        ("edgemeter", f'{sys.executable} -m edgemeter.agent.cli.main "$@"'),
        ("python", f'{sys.executable} "$@"'),
    ):
        (folder / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (folder / name).chmod(0o755)
    return folder


def extras(page: Path) -> str | None:
    """Return the extras of the install line at a page's top, None without one."""
    line = INSTALL.search(page.read_text().partition("\n## ")[0])
    return line and line[1]


@contextmanager
def walk(
    folder: Path,
    replaced: dict[str, str] | None = None,
    programs: Path | None = None,
    **environment: str,
) -> Iterator[Walk]:
    walk = Walk(folder, replaced, programs, **environment)
    try:
        yield walk
    finally:
        walk.stop()
