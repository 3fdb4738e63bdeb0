"""Tests of the pages of the documentation.

Every command block runs, in order and in an empty home, or says why it does not.
"""

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
from edgemeter.agent.contract.suite import read_file
from tests.fixtures.environments import Environments
from tests.fixtures.rows import table_row
from tools.walker import walk
from tools.walker.walk_pages import STARTS, TRANSCRIPTS, typed_in, walk_page

# A page measures for minutes, and waits for a quiet moment.
pytestmark = pytest.mark.limit_s(600)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
DOCS = ROOT / "docs"
# An example's README is no page.
IN_DOCS = [path for path in DOCS.rglob("*.md") if DOCS / "examples" not in path.parents]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(path for path in IN_DOCS if path.parent.name != "reference"),
    ]
)
WALKED = sorted(path for path in PAGES if path.parent.name in ("start", "tasks", "explain"))
# This page judges times, which other tests would disturb.
TIMED = "pull-requests"


@pytest.fixture(scope="session")
def environments(tmp_path_factory):
    """Return the environments of the pages: pages with the same install line share one."""
    return Environments(tmp_path_factory.mktemp("environments"))


def name_of(path):
    """Return a page's name as its test shows it."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


def test_every_command_runs_in_a_test_or_states_why_not():
    """A command block without a mark belongs to a page that is walked through.

    A mark `not run` has a reason.
    """
    for page, block in ((path, block) for path in PAGES for block in walk.blocks(path)):
        where = f"{page.name}:{block.line}"
        if block.language in ("console", "python"):
            assert block.language == "python" or block.commands, f"{where}: no prompt"
            if page not in WALKED and block.mark != "compared":
                assert block.mark.startswith("not run: "), (
                    f"{where}: say why it is not run, or move the page to those that are walked"
                )
            continue
        # A command of ours in a block of another kind would be neither run nor marked.
        assert not re.search(r"^(?:\$ )?edgemeter ", block.text, re.MULTILINE), (
            f"{where}: commands are of the language console"
        )
    for page in PAGES:
        assert not re.search(r"^    edgemeter ", page.read_text(), re.MULTILINE), page.name


def test_a_page_whose_commands_run_states_its_extras_and_the_table_has_each_once():
    """A page whose commands run names existing extras above its first heading.

    The table of installs has each extra once, except the developers'.
    """
    for page in (path for path in WALKED if path.parent.name != "explain" and typed_on(path)):
        with table_row(page.name):
            assert set((walk.extras(page) or "").split(",")) <= EXTRAS
    rows = re.findall(r"^.+? \| (`[^|]+`) \| ", (DOCS / "install.md").read_text(), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)) == sorted(
        EXTRAS - {"dev"}
    )


def marks_of(page):
    """Return the marks of the test that walks a page.

    They are nightly, and the servers that the page names.
    """
    text = page.read_text()
    conditional = [
        ("broker.example" in text or "mosquitto -c" in text, pytest.mark.mosquitto),
        ("influx.example" in text, pytest.mark.influx),
        # Orders of a fleet need the sandbox.
        (page.stem == "fleet", pytest.mark.bwrap),
        (page.stem == TIMED, pytest.mark.alone),
    ]
    return [pytest.mark.nightly, *(mark for applies, mark in conditional if applies)]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks_of(page)) for page in WALKED], ids=name_of
)
def test_a_page_does_what_it_promises(page, environments, tmp_path):
    """A page works from the first command to the last, with the extras that it names alone."""
    reader = walk_page(page, tmp_path, environments)
    assert [step.typed for step in reader.steps] == typed_on(page)


@pytest.mark.parametrize("page", STARTS, ids=name_of)
def test_the_transcript_of_a_start_has_the_commands_of_its_page(page):
    """A page that changes is walked again.

    `python -m tools.walker.walk_pages NAME` writes its transcript.
    """
    assert typed_in((TRANSCRIPTS / f"{page.stem}.txt").read_text()) == typed_on(page)


def test_every_suite_of_a_page_has_keys_of_today(tmp_path):
    """A part of a suite on a page has only keys that a suite takes, though it has no name."""
    suites = [
        (page, block)
        for page in PAGES
        for block in walk.blocks(page)
        if block.language == "toml" and "[[case]]" in block.text
    ]
    for page, block in suites:
        path = tmp_path / "suite.toml"
        path.write_text(
            block.text if block.text.startswith("name = ") else f'name = "part"\n{block.text}'
        )
        with table_row(f"{page.name}:{block.line}"):
            assert read_file(path).case


def typed_on(page):
    """Return what the reader of a page types."""
    return [typed for block in walk.blocks(page) for typed in block.typed]


def anchors(path):
    """Return the anchors of a page.

    They are its headings as the site and GitHub write them, and those of HTML.
    """
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = [
        re.sub(r"\]\([^)]*\)|[^\w\s-]", "", heading).strip().lower()
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    ]
    return {re.sub(r"\s", "-", heading) for heading in headings} | set(
        re.findall(r"(?:id=\"|\{#)([\w-]+)", text)
    )


def test_every_link_leads_somewhere():
    """Every link in pages and files at the root has a target; other sites are not followed."""
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        text = re.sub(
            r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        for link in re.findall(r"""(?:\]\(|src="|srcset="|href=")([^)"\s]+)""", text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = page.parent / target if target else page
            with table_row(f"{page.relative_to(ROOT)}: {link}"):
                assert path.exists()
                assert not anchor or anchor in anchors(path)


@pytest.mark.needs(module="material")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    """The site builds strictly, and loads nothing from another server.

    A dead link, a dead anchor or a page outside the navigation fails the build; so does a script,
    style or picture of another server.
    """
    # With --quiet, MkDocs counts no warning, so that --strict fails on nothing.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    completed = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > len(IN_DOCS)
    for page in pages:
        text = page.read_text()
        assert (
            re.findall(
                r"""(?:src|srcset)="(https?:|//)|<link [^>]*href="(https?:|//)|class="mermaid""",
                text,
            )
            == []
        ), page.name


def commands_of(page):
    """Yield each command of ours in the page's blocks as where it stands and its arguments."""
    for block in walk.blocks(page):
        for line in block.commands if block.language == "console" else ():
            for words in re.findall(r"(?:^|[;(|] ?)edgemeter ((?:'[^']*'|[^|>;'])+)", line):
                yield f"{page.name}:{block.line}: {line}", shlex.split(words)


def test_every_command_of_a_page_has_a_name_and_options_of_today():
    """Every command on a page has a name and options that exist.

    In running text and in samples these are checked; in a block also the arguments, and where it is
    not run, too.
    """
    for page in [*PAGES, *(DOCS / "reference").rglob("*.*")]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for words in re.findall(r"(?:`|\$\()edgemeter ([a-z][^`)]*)", text):
            command, context = cli, click.Context(cli)
            for word in words.split():
                if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z-]+", word):
                    break
                names = command.list_commands(context)
                if word not in names and command.invoke_without_command:
                    break
                assert word in names, f"{page.name}: `edgemeter {words}`"
                command = command.get_command(context, word)
            options = {name for option in command.get_params(context) for name in option.opts}
            assert {
                word for word in words.partition(" -- ")[0].split() if word.startswith("-")
            } <= options, f"{page.name}: `edgemeter {words}`"
    for where, words in (command for page in PAGES for command in commands_of(page)):
        with table_row(where):
            command, arguments = cli, words
            while isinstance(command, click.Group) and arguments:
                # The options of a group come before the name of its command.
                skipped = (
                    2
                    if arguments[0] in {name for option in command.params for name in option.opts}
                    else 0
                )
                if skipped >= len(arguments) or arguments[skipped] not in command.list_commands(
                    click.Context(cli)
                ):
                    break
                command, arguments = (
                    command.get_command(click.Context(cli), arguments[skipped]),
                    arguments[skipped + 1 :],
                )
            assert command is not cli
            assert not isinstance(command, click.Group) or command.invoke_without_command
            command.make_context("edgemeter", arguments)


def test_the_table_of_sensors_to_buy_matches_the_sensors():
    """The table of sensors states the period and the gain's uncertainty of the code.

    It does so where these are constants.
    """
    from edgemeter.agent.power import fnirsi, http_plug, hwmon, pi5_pmic, um25c  # noqa: PLC0415

    rows = re.findall(
        r"^(`[^|]+)\|[^|]+\|(\d+)[^|]*\|([^|]+)\|",
        (DOCS / "tasks" / "energy.md").read_text(),
        re.MULTILINE,
    )
    by_sensor = {name: (int(readings), gain) for name, readings, gain in rows}
    assert by_sensor == {
        "`pi5_pmic`": (1000 / pi5_pmic.PERIOD_MS, "unknown"),
        "`hwmon`, an INA2xx": (
            1000 / hwmon.PERIOD_MS,
            f"{hwmon.BOARD_U_RATIO:.0%}; INA260 {hwmon.INTERNAL_U_RATIO:.1%}",
        ),
        "`fnirsi`": (1000 / fnirsi.PERIOD_MS, f"{fnirsi.GAIN_U_RATIO * 100:.3g}%"),
        "`um25c`": (1000 / um25c.PERIOD_MS, f"{um25c.GAIN_U_RATIO * 100:.3g}%"),
        "`hwmon`, a POWER-Z": (1000 / hwmon.PERIOD_MS, "unknown"),
        "`shelly`, `tasmota`": (1000 / http_plug.PERIOD_MS, f"{http_plug.GAIN_U_RATIO * 100:.3g}%"),
    }


def test_every_page_is_in_the_navigation():
    """Every page is in the navigation, which is checked also where the site is not built."""
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
