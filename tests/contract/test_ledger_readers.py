"""Tests of everything that reads a ledger, with a file and with a database.

Readers are compare, trend, page, alerts, export, and commands.
"""

import json

import msgspec
import pytest

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.chunks import arrived
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.collector.alerts import check
from edgemeter.collector.alerts.check import alerts_of, check_alerts, undelivered_texts
from edgemeter.collector.alerts.rules import AlertRule, AlertRules, Channel
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.monitor import CollectorMetrics
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.trend import watch_file
from edgemeter.collector.trend.watch_file import Annotation
from edgemeter.collector.web.events import TrendEvents
from tests.fixtures.command import edgemeter
from tests.fixtures.exposition import read_metrics
from tests.fixtures.ledgers import fill, text_of
from tests.fixtures.record_factory import make_record
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

STEPPED = noisy(100, 70, step_at=55, step_ratio=1.09)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Keep what is derived from a database in a folder of the test's own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))


def test_annotations_and_alerts_are_kept(ledger_place):
    """Annotations are written, read and removed, and repeated findings are one alert.

    The alert is over once its level is declared.
    """
    fill(ledger_place, make_days(STEPPED))
    rules = AlertRules(rule=(AlertRule(name="step", kind="step", metrics=("energy_gross_mj",)),))
    with watch_file.open_watch(ledger_place) as file:
        annotation = watch_file.add_annotation(
            file, Annotation(9, "new supply", device="pi-1", author="ada")
        )
        watch_file.add_annotation(file, Annotation(3, "moved", begins_level=False))
        for _ in range(2):
            check_alerts([text_of(ledger_place)], rules, lambda: (FIRST_DAY + 70) * DAY_NS)
        ((alert,), _) = alerts_of(ledger_place)
        assert alert.title == "step: energy of tiny-detector fp32 on pi-1"
        watch_file.add_annotation(file, Annotation(alert.findings[0].day, "known", device="pi-1"))
        ((event, _),) = check_alerts(
            [text_of(ledger_place)], rules, lambda: (FIRST_DAY + 70) * DAY_NS
        ).changes
        assert event == "closed"
        assert watch_file.remove_annotation(file, annotation)
        assert not watch_file.remove_annotation(file, annotation)
    assert [annotation.text for annotation in watch_file.annotations_of(text_of(ledger_place))] == [
        "moved",
        "known",
    ]


def test_what_a_channel_was_not_told_waits(ledger_place, monkeypatch):
    """A message that a channel refused is sent again by a later check, one check at a time.

    The page shows the reason, and the metrics the number of such messages. Alertmanager is sent an
    alert again.
    """
    fill(ledger_place, make_days(STEPPED))
    now_ns = (FIRST_DAY + 70) * DAY_NS
    channel = Channel(name="hook", kind="alertmanager", url="http://alertmanager.example")
    rule = AlertRule(name="step", kind="step", metrics=("energy_gross_mj",), channels=("hook",))
    rules, notices, away = AlertRules(rule=(rule,), channel=(channel,)), [], TransientError("503")

    def sent_messages(_channel, changes, *_):
        if away:
            raise away
        notices.extend(changes)
        yield changes

    def checked(hours):
        check_alerts([text_of(ledger_place)], rules, lambda: now_ns + int(hours * DAY_NS) // 24)
        return undelivered_texts(alerts_of(ledger_place)[1])

    monkeypatch.setattr(check, "sent_messages", sent_messages)
    with (
        watch_file.open_watch(ledger_place) as file,
        file.checking(),
        pytest.raises(TransientError, match="in progress"),
    ):
        checked(0)
    assert checked(0) == ["1 alert undelivered to hook: 503"]
    _, (row,) = TrendEvents(LedgerStore(ledger_place)).alerts()
    assert (row.channel, row.state, row.error) == ("hook", None, "503")
    metrics = read_metrics(
        CollectorMetrics(Collector(parse_address("127.0.0.1:1", environ={}), ledger_place)).text()
    )
    assert metrics["edgemeter_collector_alert_notices"] == 1
    assert metrics["edgemeter_collector_alert_check_age_seconds"] > 0
    away = None
    assert [len(checked(hours)) for hours in (1, 2)] == [0, 0]
    assert [alert.state for alert in notices] == ["open", "open"]
    assert [row.state for row in alerts_of(ledger_place)[1]] == ["open"]


def test_the_page_reads_it_and_learns_of_what_is_new(ledger_place):
    """The page shows devices, raw samples of one run, and people's remarks.

    The tag of a view changes with each of them.
    """
    fill(ledger_place, [make_record(session=5, seq=seq) for seq in (1, 2)])
    source = LedgerStore(ledger_place)
    versions = [source.version()]
    with open_ledger(ledger_place) as ledger:
        ledger.commit(
            [], [], [PresenceChange("lab", "pi-1", DeviceState(state="online", session=5), 3)]
        )
    versions.append(source.version())
    assert [device.state for device in source.devices()] == ["online"]
    assert source.record(2, with_samples=True).samples
    assert source.record(2) == msgspec.structs.replace(
        source.record(2, with_samples=True), samples=()
    )
    events = TrendEvents(source)
    events.refresh()
    with watch_file.open_watch(ledger_place) as file:
        before = events.version()
        watch_file.add_annotation(file, Annotation(day=3, text="moved"))
        assert events.version() != before
    assert len(set(versions)) == 2


def test_the_commands_of_a_ledger_work(ledger_place):
    """The commands show devices with gaps and presence, rejections, positions and changes."""
    where = text_of(ledger_place)
    record = make_record(session=5, seq=1)
    with open_ledger(ledger_place) as ledger:
        changes = [
            PresenceChange("lab", "pi-1", DeviceState(state="online", session=5), 3),
            PresenceChange(
                "lab",
                "pi-1",
                Health(
                    device="pi-1",
                    fleet="lab",
                    session=5,
                    told_ns=1,
                    agent="0.1.0",
                    waiting_records=2,
                ),
                4,
            ),
        ]
        topic = "edgemeter/v1/lab/pi-1/result"
        rejected = Rejection(
            topic, contract_record.encode(make_record(session=5, seq=4)), "an older version", 9
        )
        ledger.commit(
            [arrived(record, contract_record.encode(record), topic, 7)], [rejected], changes
        )
        ledger.advance("influx http://x bucket 'b'", 1)
    (device,) = json.loads(
        edgemeter("collector", "devices", "--ledger", where, "--format", "json").stdout
    )["devices"]
    assert device["state"] == "online"
    assert device["records"] == 1
    assert device["missing"] == 0
    assert device["health"]["waiting_records"] == 2
    document = json.loads(
        edgemeter("collector", "status", "--ledger", where, "--format", "json").stdout
    )
    assert (document["runs"], document["devices"], document["quarantined"]) == (1, 1, 1)
    (message,) = document["rejected"]
    assert (message["topic"], message["reason"], message["times"]) == (topic, "an older version", 1)
    assert message["payload"] == rejected.payload.decode()
    assert document["safety"].endswith("disk (no replica)")
    assert document["size_bytes"] > 1000
    (sink,) = json.loads(
        edgemeter("collector", "drain", "--ledger", where, "--again", "--format", "json").stdout
    )["sinks"]
    assert sink["records_to_write"] == 1
    assert edgemeter("collector", "changes", "--ledger", where).returncode == 0
