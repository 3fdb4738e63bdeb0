"""The values that tags have: shared fairly among devices, the same for every collector of a ledger and after every restart."""

import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.tag_values import TagValues, clear, tag_uses, take_over
from edgemeter.collector.ledgers.place import open_ledger
from tests.fixtures.draining import drained
from tests.fixtures.ledgers import fill, initialised
from tests.fixtures.record_factory import make_record


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def ledger(request, tmp_path):
    """Return an open ledger of each kind."""
    where = tmp_path / "ledger" if request.param == "sqlite" else initialised(request.getfixturevalue("postgresql"))
    with open_ledger(where) as opened:
        yield opened


def suites(values, device, count, first=0):
    """Return the tags of so many suites of a device."""
    return [values.admitted(device, "suite", f"{device}-{number}") for number in range(first, first + count)]


def reread(ledger, limit=20):
    """Return the values as another collector has them."""
    values = TagValues(limit)
    values.refresh(ledger)
    return values


def test_a_device_with_thousands_of_names_leaves_room_for_every_other(ledger, caplog):
    """One brings half of what there is, the next half of the rest, and the log names who was limited."""
    values = reread(ledger)
    assert suites(values, "hostile", 30) == [f"hostile-{number}" for number in range(10)] + ["other"] * 20
    assert suites(values, "pi-1", 5) == [f"pi-1-{number}" for number in range(5)]
    assert values.admitted("pi-2", "suite", "pi-1-3") == "pi-1-3"
    assert values.admitted("pi-2", "scenario", "a\0b") == "a b"
    assert [record.args[0] for record in caplog.records] == ["hostile"]
    values.save(ledger)
    _, use = tag_uses(ledger)
    assert (use.tag, use.values, use.closed_for) == ("suite", 15, ("hostile",))


def test_the_tag_of_cases_has_room_for_ten_times_as_many(ledger):
    """A value that one device brought is free for every other."""
    values = reread(ledger)
    assert [values.admitted("pi-1", "case_hash", str(number)) for number in range(101)].count("other") == 1
    assert values.admitted("pi-2", "case_hash", "0") == "0"
    values.save(ledger)
    assert [use.limit for use in tag_uses(ledger)] == [20_000]


def test_a_decision_is_the_same_after_a_restart_and_at_another_collector(ledger):
    """Also of a value that was `other` for a device and that another one brought later."""
    values = reread(ledger)
    suites(values, "hostile", 10)
    assert values.admitted("hostile", "suite", "shared") == "other"
    assert values.admitted("pi-1", "suite", "shared") == "shared"
    values.save(ledger)
    for values_read in (values, reread(ledger)):
        assert values_read.admitted("hostile", "suite", "shared") == "other"
        assert values_read.admitted("hostile", "suite", "hostile-3") == "hostile-3"
        assert values_read.admitted("pi-1", "suite", "shared") == "shared"


def test_a_collector_that_lost_its_turn_stores_nothing_and_reads_what_the_other_stored(ledger):
    """Both counted on the same number; the second decides anew."""
    first, second = reread(ledger), reread(ledger)
    suites(first, "pi-1", 2)
    suites(second, "pi-2", 3)
    first.save(ledger)
    with pytest.raises(EdgemeterError):
        second.save(ledger)
    assert second.refresh(ledger)
    assert not second.refresh(ledger)
    assert suites(second, "pi-2", 3) == ["pi-2-0", "pi-2-1", "pi-2-2"]
    second.save(ledger)
    assert tag_uses(ledger)[0].values == 5


def test_a_device_that_is_cleared_brings_new_values_again(ledger):
    """What others brought stays; the collector that runs takes note."""
    values = reread(ledger)
    suites(values, "hostile", 20)
    suites(values, "pi-1", 3)
    values.save(ledger)
    assert clear(ledger, "hostile") == 11
    assert values.refresh(ledger)
    assert tag_uses(ledger)[0].closed_for == ()
    assert suites(values, "hostile", 2, first=50) == ["hostile-50", "hostile-51"]
    assert values.admitted("pi-1", "suite", "pi-1-2") == "pi-1-2"


def test_the_file_of_versions_before_is_taken_over_once(ledger, tmp_path):
    """A restart changes no tag, and a broken file is named."""
    path = tmp_path / "tags"
    path.write_text(json.dumps({"suite": ["a", "b"], "model": ["m"]}))
    take_over(ledger, path)
    take_over(ledger, path)
    assert not path.exists()
    assert {use.tag: use.values for use in tag_uses(ledger)} == {"model": 1, "suite": 2}
    assert reread(ledger, limit=2).admitted("pi-1", "suite", "b") == "b"
    assert reread(ledger, limit=2).admitted("pi-1", "suite", "c") == "other"
    path.write_text("{")
    with pytest.raises(ConfigError, match="delete the file"):
        take_over(ledger, path)


@pytest.mark.slow
def test_two_collectors_that_drain_in_turn_write_no_record_under_two_tags(influx_place, sink_of, tmp_path):
    """A device beyond its limit; every record is drained by both, the second from the beginning."""
    path = tmp_path / "ledger"
    fill(path, [make_record(session=5, seq=seq, suite=f"nightly-{seq}") for seq in range(1, 13)])
    for _ in range(2):
        drained(path, sink_of(influx_place.config()), Points(known=TagValues(limit=10)))
        with open_ledger(path) as opened:
            (name,) = opened.positions()
            opened.advance(name, 0)
    drained(path, sink_of(influx_place.config()), Points(known=TagValues(limit=10)))
    assert len(influx_place.query("SELECT id FROM run")) == 12
    assert len(influx_place.query("SELECT id FROM run WHERE suite = 'other'")) == 7


def test_the_command_shows_and_clears(tmp_path):
    """Values, limit and the devices whose new values are `other`."""
    path = tmp_path / "ledger"
    with open_ledger(path) as opened:
        values = reread(opened)
        suites(values, "hostile", 20)
        values.save(opened)
    result = CliRunner().invoke(collector, ["tags", "--ledger", str(path), "--json"], catch_exceptions=False)
    assert json.loads(result.stdout) == {"tags": [{"tag": "suite", "values": 10, "limit": 2000, "closed_for": ["hostile"]}]}
    assert "hostile" in CliRunner().invoke(collector, ["tags", "--ledger", str(path)], catch_exceptions=False).stdout
    result = CliRunner().invoke(collector, ["tags", "--ledger", str(path), "--clear", "hostile"], catch_exceptions=False)
    assert "11 values of hostile forgotten" in result.stderr
