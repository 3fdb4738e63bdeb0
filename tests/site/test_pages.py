"""The pages of the documentation: every command block runs, in order and in an empty home, or says why it does not."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from edgemeter.agent.cli.main import cli
from tests.fixtures.environments import Environments
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import Influx, free_port, mosquitto
from tests.site import walk

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
DOCS = ROOT / "docs"
# An example's README is no page.
IN_DOCS = [path for path in DOCS.rglob("*.md") if DOCS / "examples" not in path.parents]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(path for path in IN_DOCS if path.parent.name != "reference")])
WALKED = sorted(path for path in PAGES if path.parent.name in ("start", "tasks", "explain") or path.stem == "completion")
# The reader of the page about Python has a power sensor.
ALONE = [path for path in WALKED if "broker.example" not in path.read_text() and path.stem != "python"]
# Whose page judges times: beside other tests they may differ sixfold.
TIMED = "pull-requests"


@pytest.fixture(scope="session")
def environments(tmp_path_factory):
    """Return the environments of the pages: pages with the same install line share one."""
    return Environments(tmp_path_factory.mktemp("environments"))


def name_of(path):
    """Return a page's name as its test shows it."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


def test_every_command_runs_in_a_test_or_states_why_not():
    """A block of commands without a mark belongs to a page that is walked through; `not run` has a reason."""
    for page, block in ((path, block) for path in PAGES for block in walk.blocks(path)):
        where = f"{page.name}:{block.line}"
        if block.language in ("console", "python"):
            assert block.language == "python" or block.commands, f"{where}: no prompt"
            if page not in WALKED and block.mark != "compared":
                assert block.mark.startswith("not run: "), f"{where}: say why it is not run, or move the page to those that are walked"
            continue
        # A command of ours in a block of another kind would be neither run nor marked.
        assert not re.search(r"^(?:\$ )?edgemeter ", block.text, re.MULTILINE), f"{where}: commands are of the language console"
    for page in PAGES:
        assert not re.search(r"^    edgemeter ", page.read_text(), re.MULTILINE), page.name


def test_a_page_whose_commands_run_states_its_extras_and_the_table_has_each_once():
    """Each exists, and the line stands above the first heading; only a developer's have no row."""
    for page in (path for path in WALKED if path.parent.name in ("start", "tasks")):
        with table_row(page.name):
            assert set((walk.extras(page) or "").split(",")) <= EXTRAS
    rows = re.findall(r"^\| .+? \| (`[^|]+`) \|", (DOCS / "install.md").read_text(), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)) == sorted(EXTRAS - {"dev"})


@pytest.mark.nightly
@pytest.mark.parametrize("page", [pytest.param(path, marks=pytest.mark.alone if path.stem == TIMED else ()) for path in ALONE], ids=name_of)
def test_a_page_does_what_it_promises(page, environments, tmp_path):
    """From the first command to the last, in an environment with the extras that the page names, and no others."""
    extras = walk.extras(page)
    with walk.walk(tmp_path, programs=environments.programs(extras) if extras else None) as reader:
        executed = list(reader.page(page))
    blocks = (block for block in walk.blocks(page) if block.language in ("console", "python") and not block.title)
    assert len(executed) == sum(not block.mark.startswith(("not run", "until stopped")) for block in blocks)


@pytest.mark.nightly
def test_the_page_about_python_does_what_it_promises(environments, tmp_path):
    """With a recorded power trace in the place of the reader's sensor."""
    page, settings = DOCS / "tasks" / "python.md", tmp_path / "settings" / "edgemeter"
    settings.mkdir(parents=True)
    trace = {"scope": "board-input", "period_ms": 100, "resolution_w": 0.01, "gain_u_ratio": 0.01}
    trace |= {"t_s": [index / 10 for index in range(70)], "power_w": [3 + index % 7 / 20 for index in range(70)]}
    (settings / "trace.json").write_text(json.dumps(trace))
    (settings / "config.toml").write_text('[sensors.replay]\npath = "trace.json"\n')
    sensor = {"XDG_CONFIG_HOME": str(tmp_path / "settings"), "EDGEMETER_POWER": "replay"}
    with walk.walk(tmp_path, programs=environments.programs(walk.extras(page)), **sensor) as reader:
        printed = [output for _, output in reader.page(page)]
    model, function, comparison, energy, runs = printed
    assert "Energy" in model
    assert comparison.startswith("B: ")
    assert " J (95% " in energy
    assert float(function) > 0
    assert float(runs) > 0


@pytest.mark.nightly
@pytest.mark.mosquitto
def test_the_page_about_the_collector_does_what_it_promises(environments, tmp_path):
    """With a mosquitto in the place of the reader's broker."""
    page, broker = DOCS / "tasks" / "collector.md", mosquitto(tmp_path)
    broker.start()
    try:
        replaced = {"broker.example:1883": f"127.0.0.1:{broker.port}"}
        with walk.walk(tmp_path, replaced, environments.programs(walk.extras(page))) as reader:
            printed = [output for _, output in reader.page(page)]
    finally:
        broker.kill()
    assert any("online" in output or "offline" in output for output in printed)


@pytest.mark.nightly
@pytest.mark.mosquitto
@pytest.mark.needs("bwrap")
def test_the_page_about_a_fleet_brings_a_result_to_its_collector(environments, tmp_path):
    """Broker, service and collector from the files of `fleet init`; a board joins, measures what was ordered, and delivers."""
    page = DOCS / "tasks" / "fleet.md"
    ports = {"18883": str(free_port()), "18443": str(free_port())}
    with walk.walk(tmp_path, ports, environments.programs(walk.extras(page))) as reader:
        printed = "".join(output for _, output in reader.page(page))
        runs = list(csv.DictReader((reader.folder / "trial.csv").read_text().splitlines()))
    assert "1 device: " in printed
    assert {run["device"] for run in runs} == {"board-1"}


@pytest.mark.nightly
@pytest.mark.mosquitto
@pytest.mark.influx
def test_the_page_about_twenty_boards_does_what_it_promises(influxd, environments, tmp_path):
    """With a mosquitto and an InfluxDB in the place of the reader's, and what was delivered is in the bucket."""
    (tmp_path / "influx").mkdir()
    broker, server = mosquitto(tmp_path), Influx(influxd, tmp_path / "influx")
    broker.start()
    server.start()
    try:
        server.set_up()
        replaced = {
            "broker.example:1883": f"127.0.0.1:{broker.port}",
            "http://influx.example:8086": server.url,
            "org=lab": f"org={server.org}",
        }
        page = DOCS / "start" / "fleet-grafana.md"
        with walk.walk(tmp_path, replaced, environments.programs(walk.extras(page))) as reader:
            (reader.folder / "admin.token").write_text(server.token)
            printed = "".join(output for _, output in reader.page(page))
            assert wait_until(lambda: reader.warnings() or server.query("SELECT count(seq) FROM run", "edgemeter"), 300)
            warnings = reader.warnings()
            reader.stop()
            devices = server.query('SELECT count(distinct("device")) FROM (SELECT seq, device FROM run)', "edgemeter")
    finally:
        server.kill()
        broker.kill()
    assert "energy.json" in printed
    assert devices
    assert warnings == []


@pytest.mark.needs(module="material")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    """Strict: a dead link, a dead anchor or a page outside the navigation fails it; and no script, style or picture is another server's."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    completed = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False, timeout=500
    )
    assert (completed.returncode, completed.stdout + completed.stderr) == (0, "")
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert re.findall(r"""(?:src|srcset)="(https?:|//)|<link [^>]*href="(https?:|//)|class="mermaid""", text) == [], page.name


def commands_of(page):
    """Yield each command of ours in the page's blocks as where it stands and its arguments."""
    for block in walk.blocks(page):
        for line in block.commands if block.language == "console" else ():
            for words in re.findall(r"(?:^|[;(|] ?)edgemeter ((?:'[^']*'|[^|>;'])+)", line):
                yield f"{page.name}:{block.line}: {line}", shlex.split(words)


def test_every_command_of_a_page_has_a_name_and_options_of_today():
    """In running text by its name; in a block with its options, also where it is not run."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for words in re.findall(r"`edgemeter ([a-z][^`]*)`", text):
            command, context = cli, click.Context(cli)
            for word in words.split():
                if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z-]+", word):
                    break
                names = command.list_commands(context)
                if word not in names and command.invoke_without_command:
                    break
                assert word in names, f"{page.name}: `edgemeter {words}`"
                command = command.get_command(context, word)
    for where, words in (command for page in PAGES for command in commands_of(page)):
        with table_row(where):
            command, arguments = cli, words
            while isinstance(command, click.Group) and arguments:
                # Of a group, its own options stand before the name of its command.
                skipped = 2 if arguments[0] in {name for option in command.params for name in option.opts} else 0
                if skipped >= len(arguments) or arguments[skipped] not in command.list_commands(click.Context(cli)):
                    break
                command, arguments = command.get_command(click.Context(cli), arguments[skipped]), arguments[skipped + 1 :]
            assert command is not cli
            assert not isinstance(command, click.Group) or command.invoke_without_command
            command.make_context("edgemeter", arguments)


def test_the_table_of_sensors_to_buy_matches_the_sensors():
    """Their period and the uncertainty of their gain, where these are constants."""
    from edgemeter.agent.power import fnirsi, http_plug, hwmon, pi5_pmic, um25c  # noqa: PLC0415

    rows = re.findall(r"^(`[^|]+)\|[^|]+\|(\d+)[^|]*\|([^|]+)\|", (DOCS / "tasks" / "energy.md").read_text(), re.MULTILINE)
    by_sensor = {name: (int(readings), gain) for name, readings, gain in rows}
    assert by_sensor == {
        "`pi5_pmic`": (1000 / pi5_pmic.PERIOD_MS, "unknown"),
        "`hwmon`, an INA2xx": (1000 / hwmon.PERIOD_MS, f"{hwmon.BOARD_U_RATIO:.0%}; INA260 {hwmon.INTERNAL_U_RATIO:.1%}"),
        "`fnirsi`": (1000 / fnirsi.PERIOD_MS, f"{fnirsi.GAIN_U_RATIO * 100:.3g}%"),
        "`um25c`": (1000 / um25c.PERIOD_MS, f"{um25c.GAIN_U_RATIO * 100:.3g}%"),
        "`hwmon`, a POWER-Z": (1000 / hwmon.PERIOD_MS, "unknown"),
        "`shelly`, `tasmota`": (1000 / http_plug.PERIOD_MS, f"{http_plug.GAIN_U_RATIO * 100:.3g}%"),
    }


def test_every_page_is_in_the_navigation():
    """Also where the site is not built: who adds a page adds its line."""
    listed = set(paths_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    at_root = {"CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"}
    assert listed == {path.relative_to(DOCS).as_posix() for path in IN_DOCS} | at_root


def paths_in(nav):
    """Yield the pages of a navigation."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            yield from paths_in(next(iter(entry.values())))
