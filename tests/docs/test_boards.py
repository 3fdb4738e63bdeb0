"""Facts about the table of set-ups: docs/boards.md is made from it, and each row of it that was tried follows from its bundle."""

import hashlib
import re
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.bundle.write import write_bundle
from edgemeter.agent.doctor import setups
from edgemeter.agent.doctor.setups import SetupTable
from tests.docs import boards
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row

KNOWN = setups.read_table()


def test_the_page_is_made_from_the_table():
    """What was changed and not written down is found here."""
    assert boards.PAGE.read_text(encoding="utf-8") == boards.page(KNOWN), "write it again: python -m tests.docs.boards"


def test_every_row_that_was_tried_follows_from_its_bundle():
    """Nobody's word but the record's: each field except name and level is derived again, and the file is the one that was taken."""
    bundles = {path.name.removesuffix(".edgemeter"): path for path in boards.TRIALS.glob("*.edgemeter")}
    assert set(bundles) == {trial.record for trial in KNOWN.trial}
    for trial in KNOWN.trial:
        with table_row(trial.record):
            digest = hashlib.sha256(bundles[trial.record].read_bytes()).hexdigest()
            assert setups.trial_of(read_bundle(bundles[trial.record]).record, digest, trial.by, trial.level) == trial


def test_set_ups_name_exact_packages_or_state_that_none_are_known():
    """And the extra for the Edge TPU pins the interpreter of the pair, so that pip alone brings it."""
    for setup in KNOWN.setups:
        with table_row(setup.title, setup.runtime):
            assert setup.packages or setup.note
            assert bool(setup.install) == (bool(setup.packages) and setup.accelerator != setups.CPU)
            assert all(re.fullmatch(r"[0-9][A-Za-z0-9.+~-]*", package.version) for package in setup.packages)
            assert all(package.file for package in setup.packages if package.sha256)
    project = msgspec.toml.decode((boards.ROOT / "pyproject.toml").read_bytes())["project"]
    assert set(setups.interpreters().values()) == {project["optional-dependencies"]["coral"][0]}


def test_no_accelerator_counts_as_tried_without_a_record():
    """So far nobody has sent one; a run on the processor of such a board is none."""
    accelerated = [setup for setup in KNOWN.setups if setup.accelerator != setups.CPU]
    trials = [trial for trial in KNOWN.trial if trial.accelerator != setups.CPU]
    assert {KNOWN.tried(setup) for setup in accelerated} == {"never tried"}
    assert trials == []


@pytest.fixture
def table(tmp_path):
    """Return a table with no trial, and a folder for bundles."""
    text = boards.FILE.read_text()
    (tmp_path / "setups.toml").write_text(text.partition("\n[[trial]]")[0] + "\n")
    return tmp_path / "setups.toml", tmp_path / "trials"


def a_bundle(folder, **changes):
    """Return the bundle of one of the table's runs, changed."""
    (folder / "shared").mkdir(exist_ok=True)
    record = read_bundle(next(boards.TRIALS.glob("*.edgemeter"))).record
    return write_bundle(folder / "shared", msgspec.structs.replace(record, **changes), None)


def test_a_bundle_is_taken_once_and_makes_its_set_up_tried(table, tmp_path):
    """The file is read again as it was written, the rest of it stays, and the page names who ran it."""
    file, trials = table
    before = file.read_text()
    bundle = a_bundle(tmp_path)
    (row,) = boards.take([bundle], "A. Tester", "run", file, trials)
    taken_in = msgspec.toml.decode(file.read_bytes(), type=SetupTable)
    assert file.read_text().startswith(before)
    assert (taken_in.trial, [path.name for path in trials.iterdir()]) == ((row,), [bundle.name])
    assert f"{row.on}, A. Tester | " in boards.page(taken_in)
    with pytest.raises(ConfigError, match="is in the table"):
        boards.take([bundle], "A. Tester", "run", file, trials)


def test_a_coral_that_ran_makes_its_set_up_tried():
    """With the packages of the set-up; with another interpreter, system or on the processor it stays untried."""
    plain = read_bundle(next(boards.TRIALS.glob("*.edgemeter"))).record
    pi = msgspec.structs.replace(
        plain.environment, board="Raspberry Pi 5 Model B Rev 1.0", os="Debian GNU/Linux 13 (trixie)", arch="aarch64", python="3.13.5",
        attached=("Coral USB (18d1:9302) at 5000 Mbit/s",),
    )  # fmt: skip
    coral = msgspec.structs.replace(
        plain.runtime, name="edgetpu", package="ai-edge-litert", version="2.2.0", backend="usb,std",
        facts={"libedgetpu_package": "libedgetpu1-std 16.0tf2.19.1-1"},
    )  # fmt: skip
    for environment, runtime, tried in (
        (pi, coral, True),
        (pi, msgspec.structs.replace(coral, version="2.3.0"), False),
        (pi, msgspec.structs.replace(coral, facts={}), False),
        (pi, msgspec.structs.replace(coral, name="litert", backend="xnnpack"), False),
        (msgspec.structs.replace(pi, python="3.12.1"), coral, False),
        (msgspec.structs.replace(pi, os="Debian GNU/Linux 12 (bookworm)"), coral, False),
    ):
        record = msgspec.structs.replace(plain, environment=environment, runtime=runtime)
        trial = setups.trial_of(record, "0" * 64, "A. Tester")
        extended = msgspec.structs.replace(KNOWN, trial=(trial,))
        states = {extended.tried(setup) for setup in extended.setups if setup.accelerator == "Coral"}
        with table_row(runtime.version, environment.python, environment.os):
            assert (len(states) == 2) == tried


def test_what_a_record_does_not_show_is_refused(table, tmp_path):
    """Replayed, invalid, with a figure changed by hand, damaged, or by a name that would break the table."""
    file, trials = table
    record = read_bundle(next(boards.TRIALS.glob("*.edgemeter"))).record
    invalid = msgspec.structs.replace(record.verdict, state="invalid", reasons=("throttled: all the time",))
    for changes, by, why in (
        ({"latency": msgspec.structs.replace(record.latency, mean_ms=0.001)}, "A", "latency.mean_ms differ from what its samples give"),
        ({"provenance": {**record.provenance, "latency": "replayed"}}, "A", "shows no trial|was replayed"),
        ({"verdict": invalid}, "A", "shows no trial|is invalid"),
        ({}, "A | B", "makes no row"),
        ({}, "", "makes no row"),
    ):
        with table_row(why), pytest.raises(ConfigError, match=why):
            boards.take([a_bundle(tmp_path, **changes)], by, "run", file, trials)
    (tmp_path / "x.edgemeter").write_bytes(b"PK")
    with pytest.raises(ConfigError, match="shows no trial"):
        boards.take([tmp_path / "x.edgemeter"], "A", "run", file, trials)
    assert not trials.exists()


def test_a_text_of_a_record_cannot_break_the_table():
    """A board calls itself what it likes."""
    record = make_record()
    hostile = msgspec.structs.replace(record.environment, board="Pi | [x](http://x) `id` <script>\n| a", os=None)
    trial = setups.trial_of(msgspec.structs.replace(record, environment=hostile), "0" * 64, "A. Tester")
    page = boards.page(msgspec.structs.replace(KNOWN, trial=(trial,)))
    (line,) = [line for line in page.splitlines() if "A. Tester" in line and trial.record[:8] in line]
    assert line.count("|") == 4
    assert not set("`<>") & set(trial.board)
    assert Path(boards.PAGE).name == "boards.md"
