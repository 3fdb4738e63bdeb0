import json

from click.testing import CliRunner

from edgemeter.agent import records
from edgemeter.agent.delivery.messages import Birth, State
from edgemeter.collector.cli import collector
from edgemeter.collector.keep.ledger import Arrival, Ledger
from edgemeter.collector.keep.presence import Change
from tests.fixtures.record_factory import make_record

S = 10**9


def arrival(**changes):
    """Return a record as it arrives."""
    record = make_record(**changes)
    return Arrival(record, records.encode(record), f"edgemeter/v1/{record.fleet}/{record.device}/result", 5 * S)


def test_devices_are_listed_with_presence_records_and_gaps(tmp_path):
    """One that is online with a gap, one that only said who it is, one that only delivered."""
    birth = Birth(device="pi-1", fleet="lab", session=9, agent="0.1.0\x1b[2J", board="[red]Pi", os=None, arch="x", runtimes={})
    changes = [Change("lab", "pi-1", birth, S), Change("lab", "pi-1", State(state="online", session=9), 2 * S)]
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.commit(
            [arrival(session=9, seq=1), arrival(session=9, seq=4), arrival(device="pi-3", session=2, seq=1)],
            (),
            [*changes, Change("lab", "pi-2", State(state="lost", session=1), 3 * S)],
        )
    arguments = ["devices", "--ledger", str(tmp_path / "ledger")]
    done = CliRunner().invoke(collector, [*arguments, "--json"], catch_exceptions=False)
    one, two, three = json.loads(done.stdout)["devices"]
    assert (one["device"], one["state"], one["records"], one["missing"]) == ("pi-1", "online", 2, 2)
    assert (one["since"], one["last_record"]) == ("1970-01-01T00:00:02+00:00", "1970-01-01T00:00:05+00:00")
    assert one["sessions"] == [{"session": 9, "records": 2, "missing": 2}]
    assert (two["device"], two["state"], two["records"], two["last_record"]) == ("pi-2", "lost", 0, None)
    assert (three["device"], three["state"], three["records"], three["missing"]) == ("pi-3", None, 1, 0)
    shown = CliRunner().invoke(collector, arguments, catch_exceptions=False).stdout
    assert "[red]Pi" in shown
    assert "\x1b" not in shown
