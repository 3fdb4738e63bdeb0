"""Walks through pages with the real servers that they name, in new environments.

`python -m tools.walker.walk_pages [NAME ...]` walks the starts, or those of these names, and writes
`tests/site/transcripts/NAME.txt`. It needs the package index; the page about Grafana needs
mosquitto and InfluxDB. `.ci/bare` before it hides other programs of the machine.
"""

import csv
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests import requirements
from tests.fixtures.environments import Environments
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import Influx, Server, free_port, mosquitto
from tools.walker import walk

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TRANSCRIPTS = ROOT / "tests" / "site" / "transcripts"
STARTS = [
    *sorted((DOCS / "start").glob("*.md")),
    DOCS / "tasks" / "compare.md",
    DOCS / "tasks" / "python.md",
]


def walk_page(page: Path, folder: Path, environments: Environments) -> walk.Walk:
    """Return the walk through a page, with its extras and servers.

    The extras are those that its install line names.

    Raises:
        AssertionError: a command failed, or the page does not do what it promises.
    """
    text, extras = page.read_text(), walk.extras(page)
    replaced = {port: str(free_port()) for port in sorted(set(re.findall(r"\b18\d{3}\b", text)))}
    with ExitStack() as stack:
        if "broker.example" in text:
            broker = mosquitto(folder)
            stack.enter_context(started(broker))
            replaced["broker.example:1883"] = f"127.0.0.1:{broker.port}"
        influx = None
        if "influx.example" in text:
            (folder / "influx").mkdir()
            influx = Influx(requirements.influxd() or Path("influxd"), folder / "influx")
            stack.enter_context(started(influx))
            influx.set_up()
            replaced.update(
                {"http://influx.example:8086": influx.url, "org=lab": f"org={influx.org}"}
            )
        reader = stack.enter_context(
            walk.walk(folder, replaced, environments.programs(extras) if extras else None)
        )
        if influx is not None:
            (reader.folder / "admin.token").write_text(influx.token)
        if page.stem == "python":
            # The reader has a power sensor, whose place a recording takes.
            settings = reader.home / ".config" / "edgemeter" / "config.toml"
            settings.parent.mkdir(parents=True)
            settings.write_text('power = ["replay"]\n\n[sensors.replay]\npath = "trace.json"\n')
            trace = {
                "scope": "board-input",
                "period_ms": 100,
                "resolution_w": 0.01,
                "gain_u_ratio": 0.01,
            }
            trace |= {
                "t_s": [index / 10 for index in range(70)],
                "power_w": [3 + index % 7 / 20 for index in range(70)],
            }
            (settings.parent / "trace.json").write_text(json.dumps(trace))
        printed = reader.page(page)
        if influx is not None:
            assert wait_until(
                lambda: (
                    reader.warnings() or influx.query("SELECT count(seq) FROM run", "edgemeter")
                ),
                300,
            )
            assert reader.warnings() == []
        if page.stem in PROMISES:
            PROMISES[page.stem](printed, reader)
    return reader


@contextmanager
def started(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.kill()


def collector(printed: str, _: walk.Walk) -> None:
    """Check that the devices are listed."""
    assert "online" in printed or "offline" in printed


def fleet(printed: str, reader: walk.Walk) -> None:
    """Check that the board's result reached the collector."""
    runs = list(csv.DictReader((reader.folder / "trial.csv").read_text().splitlines()))
    assert "1 device: " in printed
    assert {run["device"] for run in runs} == {"board-1"}


def dashboards(printed: str, _: walk.Walk) -> None:
    """Check that the dashboards are listed."""
    assert "energy.json" in printed


def python(printed: str, _: walk.Walk) -> None:
    """Check that there is a comparison, and an energy."""
    assert "B: " in printed
    assert " J (95% " in printed


PROMISES: dict[str, Callable[[str, walk.Walk], None]] = {
    "collector": collector, "fleet": fleet, "fleet-grafana": dashboards, "python": python,
}  # fmt: skip


def transcript(page: Path, reader: walk.Walk) -> str:
    """Return what the reader of a page typed, and what was printed, with the seconds it took.

    Typed lines stand at the margin, printed ones are indented.
    """
    names = {
        "/home/you/.venv": str(reader.programs.parent),
        "/home/you": str(reader.home),
    } | reader.replaced
    lines = [
        (
            f"docs/{page.relative_to(DOCS)}, walked on "
            f"{time.strftime('%Y-%m-%d', time.gmtime())} in an empty home"
        ),
        (
            f"new environment: Python {platform.python_version()}, pip install "
            f"'edgemeter[{walk.extras(page)}]'"
        ),
        f"machine: {platform.machine()}, {os.cpu_count()} processors",
    ]
    if reader.replaced:
        lines.append(f"replaced by servers of this machine: {', '.join(reader.replaced)}")
    for step in reader.steps:
        printed = step.log.read_text() if step.log else step.printed
        for name, actual in names.items():
            printed = printed.replace(actual, name)
        took = "until the walk ended" if step.seconds is None else f"{step.seconds:.1f} s"
        lines += [
            "",
            "$ " + step.typed.replace("\n", "\n> "),
            *(f"    {line}".rstrip() for line in printed.splitlines()),
            f"    ({took})",
        ]
    return "\n".join(lines) + "\n"


def typed_in(text: str) -> list[str]:
    return [
        typed.replace("\n> ", "\n")
        for typed in re.findall(r"^\$ (.*(?:\n> .*)*)", text, re.MULTILINE)
    ]


def main() -> None:
    """Walk the starts that the arguments name, by default all, and write their transcripts."""
    pages = {page.stem: page for page in STARTS}
    with tempfile.TemporaryDirectory() as folder:
        environments = Environments(Path(folder))
        for name in sys.argv[1:] or pages:
            (Path(folder) / name).mkdir()
            reader = walk_page(pages[name], Path(folder) / name, environments)
            (TRANSCRIPTS / f"{name}.txt").write_text(transcript(pages[name], reader))
            print(f"{name}: {len(reader.steps)} steps")


if __name__ == "__main__":
    main()
