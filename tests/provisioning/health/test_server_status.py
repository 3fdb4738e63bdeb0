"""Whether the broker, the service and the collector of a fleet are there, and whose session was taken over, as people see it."""

import json
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.receive.fleet_address import fleet_address
from edgemeter.collector.receive.presence import CollectorPresence
from edgemeter.collector.receive.service import Collector
from edgemeter.provisioning.health import server_status
from edgemeter.provisioning.health.server_status import ServerStatus, TakeOvers
from tests.fixtures.mqtt_peer import wait_until
from tests.provisioning.identity.lab import Lab

S = 1_000_000_000


@pytest.fixture
def lab(tmp_path):
    """Return a fleet of which nothing runs."""
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)


def problems(lab):
    """Return what `fleet list` finds wrong with the server."""
    return json.loads(lab.run("list", "--json"))["server"]


def start_service(lab):
    """Start the service as `fleet serve` does, with its lock."""
    lock = DeviceLock(lab.folder.registry, server_status.SERVICE_ID)
    assert lock.take()
    lab.stack.callback(lock.release)
    lab.serve()


def start_collector(lab):
    """Start a collector as `collector up --folder` does."""
    ledger, address = lab.path / "ledger.sqlite", fleet_address(lab.folder.path)
    service = Collector(address, ledger)
    presence = CollectorPresence(address, lambda: service.name, lambda: service.unwell() is None)
    for part in (service, presence):
        part.start()
        lab.stack.callback(part.stop)
    return presence


def test_without_service_and_broker_both_are_named(lab):
    """Each with its own line; a folder without a fleet is answered with `edgemeter fleet init`."""
    issues = problems(lab)
    assert len(issues) == 2
    assert "the fleet's service is not running" in issues[0]
    assert f"the broker at mqtts://127.0.0.1:{lab.port} does not answer" in issues[1]
    result = CliRunner().invoke(collector, ["up", "--folder", str(lab.path / "none")])
    assert "edgemeter fleet init" in str(result.exception)


@pytest.mark.mosquitto
@pytest.mark.services
def test_list_and_run_report_what_is_down(lab):
    """First the collector, then nothing, then the collector again, then the broker."""
    lab.broker.start()
    lab.stack.callback(lab.broker.kill)
    assert "the fleet's service is not running" in problems(lab)[0]
    start_service(lab)
    assert wait_until(lambda: [problem.split(",")[0] for problem in problems(lab)] == ["no collector answers"])
    presence = start_collector(lab)
    assert wait_until(lambda: problems(lab) == [])
    presence.stop()
    assert wait_until(lambda: [problem.split(",")[0] for problem in problems(lab)] == ["no collector answers"])


def test_a_broker_that_went_away_is_named_by_the_age_of_the_status(lab, monkeypatch):
    """The service writes while it is connected."""
    lock = DeviceLock(lab.folder.registry, server_status.SERVICE_ID)
    assert lock.take()
    lab.stack.callback(lock.release)
    collectors = {"1": server_status.CollectorSeen(state="online", heard_ns=100 * S)}
    monkeypatch.setattr(server_status, "read_status", lambda _folder: ServerStatus(written_ns=100 * S, collectors=collectors))
    assert server_status.server_issues(lab.folder, 110 * S) == []
    assert "does not answer the fleet's service" in server_status.server_issues(lab.folder, 200 * S)[0]


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_board_that_takes_anothers_client_id_is_disconnected_and_shown(lab):
    """It connects as pi-1 with the certificate of pi-2: pi-1 comes back, pi-2 is named in the list."""
    lab.start()
    boards = [lab.board(f"pi-{number}", f"100{number}") for number in (1, 2)]
    for number, board in enumerate(boards, 1):
        board.join(lab.token(f"pi-{number}"))
    victim = boards[0].client("pi-1")
    thief = boards[1].client("pi-1")
    assert wait_until(lambda: bool(thief.reasons))
    assert wait_until(lambda: bool(victim.reasons) and victim.session.is_connected())

    def concerns():
        return [concern["text"] for line in json.loads(lab.run("list", "--json"))["devices"] for concern in line["concerns"]]

    assert wait_until(lambda: any("'pi-2' connected with its client id" in text for text in concerns()))
    thief.close()


def test_take_overs_by_its_own_key_are_shown_when_they_repeat():
    """A line that breaks now and then makes one or two; an hour later nothing is left of them."""

    def text(count, by=None, now_ns=0):
        return ServerStatus(written_ns=0, take_overs={"pi-1": TakeOvers(count=count, last_ns=0, by=by)}).take_over_text("pi-1", now_ns)

    assert text(2) is None
    assert "3 times within the hour: two boards have its key" in text(3)
    assert "'pi-2' connected with its client id (1 time" in text(1, "pi-2")
    assert text(3, now_ns=3601 * S) is None
