"""Test that a ledger that was lost or restored comes back from the devices.

The broker, outboxes, publishers and collectors are real.
"""

import contextlib
import json
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector as command
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.receive import collector as receiving
from edgemeter.collector.upkeep.request_again import AskedDevice, request_again
from tests.fixtures.collecting import collecting, publishing
from tests.fixtures.draining import drained
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.publishing import started
from tests.fixtures.record_factory import make_record
from tests.fixtures.servers import mosquitto

pytestmark = pytest.mark.mosquitto


@pytest.fixture(autouse=True)
def _roomy_disk(monkeypatch):
    """Keep receipted records, however full the disk of this machine is."""
    monkeypatch.setattr(outbox_file, "KEPT_DISK_RATIO", 0.0)


@contextlib.contextmanager
def device(broker, folder, name="pi-1"):
    """Keep a device connected for the block; return its outbox and publisher.

    It sends nothing twice by itself, however slow the disk.
    """
    with (
        Outbox(folder / f"{name}.sqlite") as outbox,
        publishing(broker, outbox, name, receipt_timeout_s=120.0) as publisher,
    ):
        yield outbox, publisher


def deliver(outbox, publisher, count, name="pi-1"):
    for _ in range(count):
        outbox.put(make_record(device=name, fleet="lab"))
    assert publisher.drain(60) == 0


def texts(path):
    with SqliteLedger(path, "read") as ledger:
        return sorted(text for _, _, text in ledger.texts())


def test_a_ledger_that_is_gone_comes_back_from_every_device(broker, tmp_path):
    """Each text comes back once, and a second request finds everything there."""
    with (
        device(broker, tmp_path) as (outbox, publisher),
        device(broker, tmp_path, "pi-2") as (other, second),
    ):
        with collecting(broker, tmp_path / "old"):
            deliver(outbox, publisher, 30)
            deliver(other, second, 5, "pi-2")
        with collecting(broker, tmp_path / "new") as collector:
            devices = request_again(broker, tmp_path / "new", (), 0)
            assert devices == [
                AskedDevice("lab", "pi-1", "online"),
                AskedDevice("lab", "pi-2", "online"),
            ]
            assert wait_until(lambda: collector.counts.inserted == 35)
            assert publisher.drain(60) == second.drain(60) == 0
            assert texts(tmp_path / "new") == texts(tmp_path / "old")
            assert collector.counts.duplicates == 0
            request_again(broker, tmp_path / "new", ("pi-2",), 0)
            assert wait_until(lambda: collector.counts.duplicates == 5)
            assert (collector.counts.inserted, len(texts(tmp_path / "new"))) == (35, 35)
            assert second.drain(60) == 0
            assert (outbox.receipted("pi-1"), other.receipted("pi-2")) == (30, 5)


@pytest.mark.influx
@pytest.mark.nightly
@pytest.mark.parametrize(
    "clock",
    [{"clock_synchronised": False, "started_at_ns": 5}, {"started_at_ns": 4_000_000_000 * 10**9}],
    ids=["none", "ahead"],
)
def test_a_record_without_a_time_of_its_own_is_one_point_wherever_it_comes_again(
    influx2_server, bucket_of, broker, tmp_path, monkeypatch, clock
):
    """The record keeps the time of its first receipt, days before.

    It is in the new ledger and in the bucket where it was in the old ones.
    """
    config = InfluxConfig(
        influx2_server.url, influx2_server.token, influx2_server.org, f"again-{tmp_path.name}"
    )
    bucket_of(config).create(None)
    with device(broker, tmp_path) as (outbox, publisher):
        for name, days in (("old", 3), ("new", 0)):
            monkeypatch.setattr(
                receiving.time,
                "time_ns",
                lambda days=days, now_ns=time.time_ns: now_ns() - days * NS_PER_DAY,
            )
            with collecting(broker, tmp_path / name) as collector:
                for _ in range(4 if name == "old" else 0):
                    outbox.put(make_record(device="pi-1", fleet="lab", **clock))
                if name == "new":
                    request_again(broker, tmp_path / "new", (), 0)
                publisher.wake()
                assert wait_until(lambda: collector.counts.inserted == 4), collector.counts
                assert publisher.drain(60) == 0
            monkeypatch.undo()
            drained(tmp_path / name, bucket_of(config))
    points = influx2_server.query("SELECT id FROM run", config.bucket)
    assert len(points) == 4
    assert all(2.9 < (time.time_ns() - point["time"]) / NS_PER_DAY < 4.1 for point in points)


@pytest.mark.nightly
def test_a_device_that_is_away_serves_a_request_when_it_is_back_and_only_once(broker, tmp_path):
    """The broker sends the request at each connection; it is served at the first."""
    with collecting(broker, tmp_path / "old"), device(broker, tmp_path) as (outbox, publisher):
        deliver(outbox, publisher, 4)
    with collecting(broker, tmp_path / "new") as collector:
        assert request_again(broker, tmp_path / "new", ("pi-1",), 0) == [
            AskedDevice("lab", "pi-1", "offline")
        ]
        with device(broker, tmp_path) as (_, publisher):
            assert wait_until(lambda: collector.counts.inserted == 4)
            assert publisher.drain(60) == 0
        with device(broker, tmp_path) as (outbox, publisher):
            deliver(outbox, publisher, 1)
            assert wait_until(lambda: collector.counts.inserted == 5)
            assert collector.counts.duplicates == 0
    assert texts(tmp_path / "old") == [
        text for text in texts(tmp_path / "new") if text in texts(tmp_path / "old")
    ]


@pytest.mark.nightly
def test_the_command_names_who_sends_when(broker, tmp_path):
    """A device that is away is known from the ledger or the broker.

    A day to start from leaves out older records.
    """
    ledger = str(tmp_path / "ledger")
    with (
        collecting(broker, tmp_path / "ledger") as collector,
        device(broker, tmp_path) as (outbox, publisher),
    ):
        deliver(outbox, publisher, 2)
        with device(broker, tmp_path, "pi-2"):
            pass
        words = ["request-again", "--broker", str(broker), "--ledger", ledger]
        result = CliRunner().invoke(
            command, [*words, "--since", "2099-01-01"], catch_exceptions=False
        )
        assert [line.split() for line in result.stdout.splitlines()[1:]] == [
            ["lab", "pi-1", "online"],
            ["lab", "pi-2", "offline"],
        ]
        assert "asked 2 devices, 1 online" in result.stderr
        result = CliRunner().invoke(
            command,
            [*words, "--format", "json", "pi-1", "--since", "2020-01-01"],
            catch_exceptions=False,
        )
        assert json.loads(result.stdout) == {
            "asked": [{"fleet": "lab", "device": "pi-1", "state": "online"}]
        }
        assert wait_until(lambda: collector.counts.duplicates == 2)


def test_a_device_that_nobody_knows_or_a_broker_that_refuses_is_named(broker, tmp_path):
    """Otherwise the request would be one that nobody reads."""
    with pytest.raises(ConfigError):
        request_again(broker, tmp_path / "none", (), 0)
    with pytest.raises(ConfigError, match="'pi-9'"):
        request_again(broker, tmp_path / "none", ("pi-9",), 0)
    (tmp_path / "acl").write_text("topic read edgemeter/v1/#\n")
    with collecting(broker, tmp_path / "ledger"), device(broker, tmp_path) as (outbox, publisher):
        deliver(outbox, publisher, 1)
    with (
        started(mosquitto(tmp_path, f"acl_file {tmp_path / 'acl'}")) as strict,
        pytest.raises(UnavailableError),
    ):
        request_again(strict, tmp_path / "ledger", (), 0)
