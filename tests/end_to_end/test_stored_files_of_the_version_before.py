"""What version 0.1.0 stored, opened by the current code: the same records, orders, devices and figures come back."""

import base64
import csv
import io
import json
import shutil
import time
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.base import config
from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract import health, identity, messages, orders, record
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.identity import identity as own_identity
from edgemeter.agent.jobs.journal import Journal
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.compare.summary import summaries_of
from edgemeter.collector.index.rollup import rolled_up
from edgemeter.collector.runs.cases import group_cases
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.provisioning.identity.authority import Authority, KeyPair, read_request, revoked_numbers

STORED = Path(__file__).parents[1] / "fixtures" / "stored"
MESSAGES = [(one["topic"], base64.b64decode(one["payload"])) for one in json.loads((STORED / "messages.json").read_text())]
# What people read may be worded anew.
WORDS = {"reason", "why", "text", "remark", "health_reason", "detail", "error", "note", "label", "interval_within"}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Return a copy of the stored files, below which the commands of a device find their own."""
    copy = tmp_path / "stored"
    shutil.copytree(STORED, copy)
    monkeypatch.setenv("EDGEMETER_HOME", str(copy / "home"))
    monkeypatch.chdir(copy)
    return copy


def printed(*arguments):
    """Return what a command prints."""
    done = CliRunner().invoke(cli, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def expected(name):
    """Return what the version before printed."""
    return json.loads((STORED / "expected" / f"{name}.json").read_text())


def figures(document, *, but=()):
    """Return a document without its wording, and without `but`."""
    if isinstance(document, dict):
        return {key: figures(value, but=but) for key, value in document.items() if key not in WORDS and key not in but}
    if isinstance(document, list):
        return [figures(value, but=but) for value in document]
    return document


def known_before(now, before):
    """Return a document without the fields that the version before did not have; of what it stored they hold nothing."""
    if isinstance(now, dict) and isinstance(before, dict):
        assert not [key for key in now if key not in before and now[key]]
        return {key: known_before(value, before[key]) for key, value in now.items() if key in before}
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return [known_before(*pair) for pair in zip(now, before, strict=True)]
    return now


def payloads(kind):
    """Return the payloads of all stored messages of a topic's last part."""
    found = [payload for topic, payload in MESSAGES if topic.endswith(f"/{kind}")]
    assert found
    return found


def test_a_ledger_holds_its_records_in_every_column(stored):
    """Each of the runs, all columns that the version before exported; those of today that it had not say more of the same."""
    text = printed("report", stored / "ledger.sqlite", "-o", "-", "--columns", "all")
    now, before = (list(csv.DictReader(io.StringIO(one))) for one in (text, (STORED / "expected" / "runs.csv").read_text()))
    for row, stored_row in zip(now, before, strict=True):
        for column, cell in stored_row.items():
            if cell.startswith(("[", "{")):
                assert known_before(json.loads(row[column]), json.loads(cell)) == json.loads(cell)
            else:
                assert row[column] == cell
    assert len(now) == 9


def test_a_ledgers_samples_come_back(stored):
    """The raw samples are those of the messages that brought them."""
    sent = {(one.session, one.seq): one for payload in payloads("result") for one in map(record.decode, split(payload))}
    with SqliteLedger(stored / "ledger.sqlite", "read") as ledger:
        held = {(one.record.session, one.record.seq): one.record for one in ledger.records(with_samples=True)}
    assert len(set(sent) & set(held)) >= 4
    assert all(held[key].samples == sent[key].samples for key in set(sent) & set(held))


def test_a_ledger_knows_its_devices_and_what_it_rejected(stored):
    """Presence, sessions, missing numbers; and the quarantine's bytes."""
    devices = json.loads(printed("collector", "devices", "--ledger", stored / "ledger.sqlite", "--json"))
    assert known_before(devices, expected("collector_devices")) == expected("collector_devices")
    rejected = json.loads(printed("collector", "quarantine", "list", "--ledger", stored / "ledger.sqlite", "--json"))
    assert figures(rejected) == figures(expected("collector_quarantine"))


def test_a_ledger_is_compared_to_the_same_figures(stored):
    """Medians, energies, intervals and factors of each row."""
    document = json.loads(printed("compare", "--reference", "reference", "--store", stored / "ledger.sqlite", "--json"))
    assert known_before(figures(document), figures(expected("compare"))) == figures(expected("compare"))
    assert document["rows"]


def test_what_was_derived_before_gives_way_to_the_index(stored):
    """The cases are those of the runs; the roll-up and the index of trends that lay beside the ledger are gone."""
    path = stored / "ledger.sqlite"
    cases = [(one.key, one.p50_ms, list(one.run_ids)) for one in rolled_up(LedgerStore(path), worth_runs=0).summaries]
    by_runs = summaries_of(group_cases(LedgerStore(path).contents().runs)[0])
    assert cases == [(one.key, one.p50_ms, list(one.run_ids)) for one in by_runs]
    assert len(cases) == 2
    assert not [*stored.glob("ledger.sqlite.digest*"), *stored.glob("ledger.sqlite.trend*")]


def test_an_outbox_still_holds_what_waits(stored):
    """Two records, whole, with their numbers; a new one gets a later session."""
    with Outbox(stored / "home" / "outbox.sqlite") as outbox:
        assert outbox.waiting() == {"pi-1": 2}
        pending = outbox.pending(10, 1_000_000)
        waiting = [record.decode(one.payload) for one in pending]
        assert [(one.session, one.seq) for one in waiting] == [(one.session, one.seq) for one in pending]
        assert outbox.put(waiting[0]).session == outbox.session
        assert outbox.session not in {one.session for one in pending}
    assert [(one.model.name, one.repeat, one.latency.count > 0, len(one.samples) > 0) for one in waiting] == [
        ("m.replay", 0, True, True),
        ("m.replay", 1, True, True),
    ]


def test_a_devices_journal_lists_its_orders(stored):
    """What was ordered, how it ended, which runs came of it, and the schedule's next time."""
    now = json.loads(printed("agent", "jobs", "--json"))
    assert figures(now) == figures(expected("agent_jobs"))
    journal = Journal(stored / "home" / "jobs.sqlite")
    assert [one.state for one in journal.latest(10)] == ["done"] * 3
    assert [one.name for one in journal.due(1)] == []
    journal.close()


@pytest.mark.needs("openssl")
def test_a_board_keeps_its_identity_and_configuration(stored):
    """Name, serial number, broker and certificate; key and certificate belong together."""
    identity_of = own_identity.read_identity(stored / "home")
    assert (identity_of.device, identity_of.fleet, identity_of.serial) == ("pi-1", "lab", "100000001")
    folder = stored / "home" / "identity"
    assert own_identity.belong_together(folder / "device.crt", folder / "device.key")
    found = config.read(stored / "home" / "config.toml")
    assert (found.device, found.fleet, found.broker) == ("pi-1", "lab", str(identity_of.broker))


def test_join_files_are_read_used_or_not():
    """The token stands in the one and is gone from the other."""
    fresh, used = (identity.read_join_file(STORED / "join" / f"pi-1{kind}.join.toml") for kind in ("", ".used"))
    assert (fresh.device, used.device, used.token) == ("pi-1", "pi-1", None)
    topics = {topic.split("/")[2] for topic, _ in MESSAGES if topic.startswith("edgemeter/enrol/")}
    assert topics == {identity.token_id(fresh.token)}


def test_a_registry_lists_its_devices_and_jobs(stored):
    """Devices, one device whole, and every job: all but what depends on today."""
    folder = ("--json", "--folder", stored / "fleet")
    today = ("presence_since", "concerns", "server", "newer_job")
    listed = figures(expected("fleet_list"), but=today)
    assert known_before(figures(json.loads(printed("fleet", "list", *folder)), but=today), listed) == listed
    shown = figures(expected("fleet_show"), but=today)
    assert known_before(figures(json.loads(printed("fleet", "show", "pi-1", *folder)), but=today), shown) == shown
    assert json.loads(printed("fleet", "jobs", *folder)) == expected("fleet_jobs")


def test_an_authority_goes_on_signing(stored):
    """The stored key signs the stored request, and its revocation list is read."""
    authority = Authority(KeyPair((stored / "fleet" / "ca.crt").read_bytes(), (stored / "fleet" / "ca.key").read_bytes()))
    asked = identity.decode_request(payloads("request")[0])
    issued = authority.issue_device(read_request(asked.csr), "pi-1", time.time_ns())
    assert issued.pem.startswith("-----BEGIN CERTIFICATE-----")
    assert revoked_numbers((stored / "fleet" / "revoked.crl").read_bytes()) == set()


@pytest.mark.usefixtures("stored")
def test_a_bundle_verifies_to_the_same_figures():
    """Every figure is computed again from the samples: none differs, and those that are new are counted too."""
    now, before = json.loads(printed("bundle", "verify", "run.edgemeter", "--json")), figures(expected("verify"), but={"checked"})
    assert known_before(figures(now, but={"checked"}), before) == before
    assert now["bundles"][0]["state"] == "same"
    assert now["bundles"][0]["checked"] >= expected("verify")["bundles"][0]["checked"] == 47


def split(payload):
    """Return the encoded records of a message."""
    return messages.split_records(zlib.decompress(payload) if payload[:1] == b"x" else payload)


def test_messages_are_read_and_written_back_as_they_were():
    """Of every kind that a fleet sends; of records all but the order of their fields, and fields that are new."""
    for kind, decode, encode in (
        ("birth", messages.decode_birth, messages.encode_message),
        ("state", messages.decode_state, messages.encode_message),
        ("receipt", messages.decode_receipt, messages.encode_message),
        ("progress", messages.decode_progress, messages.encode_message),
        ("health", health.decode_health, health.encode_health),
        ("job", orders.decode_report, orders.encode_order),
        ("command", orders.decode_command, orders.encode_order),
        ("want", orders.decode_want, orders.encode_order),
        ("request", identity.decode_request, identity.encode_identity),
    ):
        for payload in payloads(kind):
            assert encode(decode(payload)) == payload, kind
    for payload in payloads("content"):
        assert orders.join_chunk(*orders.split_chunk(payload)) == payload
    for payload in payloads("result"):
        for one in split(payload):
            assert known_before(json.loads(record.encode(record.decode(one))), json.loads(one)) == json.loads(one)
