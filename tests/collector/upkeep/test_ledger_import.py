"""An import brings every record of one ledger into another, once, whatever is there and however often it is started."""

import json
import subprocess

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.contract.messages import Birth, DeviceState
from edgemeter.agent.contract.record import encode
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.retention import Retention
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.ledgers.place import ledger_place, open_ledger
from edgemeter.collector.upkeep.ledger_import import import_ledger
from tests.chaos.world import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import make_record

DAY_NS = 86_400 * 10**9
TOPIC = "edgemeter/v1/f/pi-1/result"


def commit(ledger, *seqs, device="pi-1", received_ns=7, prefix="r"):
    """Commit records with these numbers; return their texts."""
    records = [make_record(id=f"{prefix}-{device}-{seq}", device=device, fleet="f", session=1, seq=seq) for seq in seqs]
    texts = [encode(run) for run in records]
    ledger.commit([Arrival(run, text, TOPIC, received_ns) for run, text in zip(records, texts, strict=True)])
    return texts


@pytest.fixture
def source(tmp_path):
    """Return the ledger that is imported."""
    with SqliteLedger(tmp_path / "source.sqlite") as ledger:
        yield ledger


@pytest.fixture
def target(tmp_path):
    """Return the ledger into which it is imported."""
    with SqliteLedger(tmp_path / "target.sqlite") as ledger:
        yield ledger


def content(ledger):
    """Return text and time of receipt of every record."""
    return sorted((payload, received_ns) for _, received_ns, payload in ledger.texts())


def test_every_record_comes_with_its_text_and_its_time(source, target):
    """Raw samples too; in the order of the source."""
    commit(source, 1, 2, 3, received_ns=10)
    commit(source, 1, 2, device="pi-2", received_ns=20)
    imported = import_ledger(source, target)
    assert (imported.records, imported.inserted, imported.held, imported.differing) == (5, 5, 0, ())
    assert content(target) == content(source)
    assert [record.record.id for record in target.records()] == [record.record.id for record in source.records()]


def test_a_second_import_adds_nothing_and_finds_everything(source, target):
    """Quarantined messages are not counted again either."""
    commit(source, 1, 2, 3)
    source.commit((), [Rejection(TOPIC, b"rubbish", "not a run record", 5)])
    first = import_ledger(source, target)
    assert (first.inserted, first.quarantined) == (3, 1)
    second = import_ledger(source, target)
    assert (second.records, second.inserted, second.held, second.quarantined) == (3, 0, 3, 0)
    assert target.count() == 3
    assert [quarantined_message.times for quarantined_message in target.quarantined()] == [1]


def test_ledgers_are_merged(source, target):
    """A record that both hold is there once; what only the target holds stays."""
    commit(source, 1, 2, 3)
    commit(target, 3, 4)
    imported = import_ledger(source, target)
    assert (imported.inserted, imported.held) == (2, 1)
    assert target.ranges("pi-1", 1) == [(1, 4)]


def test_another_record_with_the_number_is_quarantined_and_reported(source, target):
    """The record held before stays, the other one goes to the quarantine."""
    commit(source, 1, 2)
    commit(target, 2, prefix="other")
    imported = import_ledger(source, target)
    assert (imported.inserted, imported.collisions, imported.held, imported.differing) == (1, 1, 0, ())
    (entry,) = target.quarantined()
    assert b"r-pi-1-2" in entry.payload


def test_records_without_their_raw_samples_are_the_same_records(source, target):
    """Retention of either ledger has removed them."""
    commit(source, 1, 2)
    import_ledger(source, target)
    target.forget(Retention(samples_days=1), 100 * DAY_NS)
    imported = import_ledger(source, target)
    assert (imported.held, imported.stripped, imported.differing) == (0, 2, ())


def test_what_the_target_has_removed_does_not_come_back(source, target):
    """Its retention stays in force, and the import says so."""
    commit(source, 1, 2)
    import_ledger(source, target)
    target.forget(Retention(records_days=1), 100 * DAY_NS)
    imported = import_ledger(source, target)
    assert (imported.inserted, imported.removed, target.count()) == (0, 2, 0)


def test_an_invalid_record_that_nobody_had_checked_is_quarantined(source, target):
    """It is invalid here as there."""
    record = make_record(id="x", device="pi-1", fleet="f", session=1, seq=1)
    document = msgspec.json.decode(encode(record)) | {"latency": 5}
    source.commit([Arrival(record, msgspec.json.encode(document), TOPIC, 7, is_checked=False)])
    imported = import_ledger(source, target)
    assert (imported.records, imported.inserted, imported.invalid) == (1, 0, 1)
    assert [quarantined_message.topic for quarantined_message in target.quarantined()] == [TOPIC]


def birth(name, agent="1"):
    """Return a birth."""
    return Birth(device=name, fleet="f", session=9, agent=agent, board="b", os=None, arch="x", runtimes={})


def test_devices_come_unless_the_target_has_heard_of_them_since(source, target):
    """The end of a session, too."""
    source.commit((), changes=[PresenceChange("f", "pi-1", birth("pi-1"), 5)])
    source.commit((), changes=[PresenceChange("f", "pi-1", DeviceState(state=state, session=9), 5) for state in ("online", "lost")])
    source.commit((), changes=[PresenceChange("f", "pi-2", DeviceState(state="online", session=3), 5)])
    target.commit((), changes=[PresenceChange("f", "pi-1", DeviceState(state="online", session=2), 4)])
    target.commit((), changes=[PresenceChange("f", "pi-2", DeviceState(state="online", session=4), 6)])
    assert import_ledger(source, target).devices == 1
    assert {(device.device, device.state, device.session) for device in target.devices()} == {("pi-1", "lost", 9), ("pi-2", "online", 4)}
    assert import_ledger(source, target).devices == 0


class Flipping:
    """A target whose disk flips a bit: what is read is not what was written."""

    def __init__(self, ledger):
        self._ledger = ledger

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def texts(self, *, after_row=0):
        """Yield the texts, the second one changed."""
        for number, (row, received_ns, payload) in enumerate(self._ledger.texts(after_row=after_row)):
            yield row, received_ns, payload.replace(b"tiny", b"tidy") if number == 1 else payload

    def text(self, record):
        """Return the text, changed."""
        stored = self._ledger.text(record)
        return stored and stored.replace(b"tiny", b"tidy")


def test_a_record_that_is_not_there_as_it_was_fails_the_import(source, target):
    """A copy that nobody compared is no copy."""
    commit(source, 1, 2, 3)
    imported = import_ledger(source, Flipping(target))
    assert imported.differing == ("r-pi-1-2 of device 'pi-1'",)


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_ledger_goes_to_postgresql_and_back(source, target, postgresql):
    """As the same records; and a second time nothing is added there either."""
    commit(source, *range(1, 300), received_ns=10)
    commit(source, 1, 2, device="pi-2", received_ns=20)
    source.commit((), [Rejection(TOPIC, b"rubbish", "not a run record", 5)], [PresenceChange("f", "pi-1", birth("pi-1"), 5)])
    address = ledger_place(postgresql)
    assert CliRunner().invoke(collector, ["init-ledger", "--ledger", postgresql]).exit_code == 0
    with open_ledger(address) as server:
        imported = import_ledger(source, server)
        assert (imported.records, imported.inserted, imported.differing) == (301, 301, ())
        assert import_ledger(source, server).held == 301
        back = import_ledger(server, target)
        assert (back.records, back.inserted, back.devices, back.quarantined) == (301, 301, 1, 1)
    assert content(target) == content(source)


def test_the_command_reports_what_it_did(source, tmp_path):
    """In words, and as JSON."""
    commit(source, 1, 2, 3)
    command = ["import", str(tmp_path / "source.sqlite"), "--ledger", str(tmp_path / "target.sqlite")]
    result = CliRunner().invoke(collector, command)
    assert result.exit_code == 0, result.output
    assert "3 records read, 3 imported, 0 there before: all found by their hash" in result.stdout
    second = CliRunner().invoke(collector, [*command, "--json"])
    assert json.loads(second.stdout)["held"] == 3


def test_a_ledger_is_not_imported_into_itself(source, tmp_path):
    """Also where another path leads to the same file."""
    commit(source, 1)
    command = ["import", str(tmp_path / "source.sqlite"), "--ledger", str(tmp_path / "x" / ".." / "source.sqlite")]
    (tmp_path / "x").mkdir()
    result = CliRunner().invoke(collector, command)
    assert "is the ledger itself" in str(result.exception)


@pytest.mark.slow
def test_an_import_that_is_killed_goes_on_where_it_was(source, target, tmp_path):
    """SIGKILL after the first commits of each; in the end every record is there once."""
    for first in range(1, 16_001, 500):
        commit(source, *range(first, first + 500))
    command = [*EDGEMETER, "collector", "import", str(tmp_path / "source.sqlite"), "--ledger", str(tmp_path / "target.sqlite")]
    for _ in range(3):
        before = target.count()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_until(lambda before_kill=before: target.count() > before_kill, 60)
        process.kill()
        process.wait()
    assert target.count() < 16_000
    completed = subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=120)
    document = json.loads(completed.stdout)
    assert document["inserted"] + document["held"] == document["records"] == 16_000
    assert document["differing"] == []
    assert content(target) == content(source)
