"""Tests of how people change the runs of a ledger: they exclude, include, delete and note them.

A SQLite file and a PostgreSQL database behave alike.
"""

import random

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.number_text import short_id
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.ledgers.place import open_ledger
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import arrival, arrived_batch, text_of
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.record_factory import make_record


def history_of_runs(seed):
    """Return runs of two boards and a reference over 24 days, in the order of their receipt.

    One of the boards has a step.
    """
    runs = [
        *level_runs(stepped_ms(24, 14, 1.2, seed=seed)),
        *level_runs(stepped_ms(24, 24, 1.0, seed=seed + 1), device="pi-2"),
        *level_runs([4.0] * 6, device="server-1", role="reference"),
    ]
    return sorted(runs, key=lambda run: run.started_at_ns)


def commit(ledger, runs, draw):
    for device in ("pi-1", "pi-2", "server-1"):
        own_runs = [run for run in runs if run.device == device]
        split = draw.randint(0, len(own_runs))
        ledger.commit(
            [arrival(run) for run in own_runs[:split]], batches=[arrived_batch(own_runs[split:])]
        )


def statistics_of(ledger_place):
    """Return what the commands print of a ledger, and its export, by command."""
    store = ["--ledger", text_of(ledger_place)]
    commands = {
        "compare": ["compare", "--reference", "reference", *store, "--format", "json"],
        "trend": ["trend", "--all", *store, "--format", "json"],
        "export": ["report", *store, "-o", "-", "--columns", "all"],
    }
    outcomes = {name: edgemeter(*words) for name, words in commands.items()}
    assert [outcome.stderr for outcome in outcomes.values() if outcome.returncode] == []
    printed = {name: outcome.stdout for name, outcome in outcomes.items()}
    # The order of an export is that of the rows, and an included run has a new one.
    return printed | {"export": sorted(printed["export"].splitlines())}


@pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.nightly), pytest.param(3, marks=pytest.mark.nightly)],
)
def test_whatever_was_deleted_or_excluded_the_statistics_are_those_of_a_ledger_that_never_had_it(
    ledger_place, tmp_path, seed
):
    """Statistics without deleted and excluded runs equal those of a ledger that never had them.

    A device that delivers every record again brings none of them back.
    """
    draw, runs = random.Random(seed), history_of_runs(seed)  # noqa: S311 - draws a case
    with open_ledger(ledger_place) as ledger:
        commit(ledger, runs, draw)
        removed, back = draw.sample(runs, 20), set()
        # The newest row as well, which is what most people delete.
        removed += [run for run in runs[-1:] if run not in removed]
        history = LedgerRuns(ledger)
        for number, run in enumerate(removed):
            history.withdraw(
                run.id, "excluded" if number % 2 else "deleted", "ada@lab", "the fan was off"
            )
            if number % 8 == 1:
                history.include(run.id, "ada@lab", "it was on")
                back.add(run.id)
        redelivered = ledger.commit([arrival(run) for run in runs])
        assert (redelivered.inserted, len(redelivered.held)) == (0, len(runs))
    remaining = [run for run in runs if run not in removed or run.id in back]
    with SqliteLedger(tmp_path / "never.sqlite") as ledger:
        ledger.commit([arrival(run) for run in remaining])
    assert statistics_of(ledger_place) == statistics_of(tmp_path / "never.sqlite")


def test_a_deleted_run_leaves_nothing_but_who_deleted_it_when_and_why(ledger):
    """A deleted run leaves only who deleted it, when and why.

    No byte of its record is left in the ledger, and its neighbour in the same message stays as it
    was.
    """
    first, second = (
        make_record(id=name * 8, session=5, seq=seq) for name, seq in (("cafe", 1), ("beef", 2))
    )
    ledger.commit((), batches=[arrived_batch([first, second])])
    history = LedgerRuns(ledger)
    history.note(first.id, "odd noise", "ada@lab")
    assert history.withdraw(first.id, "deleted", "ada@lab", "wrong model") == [("pi-1", 5, 1)]
    assert [(event.action, event.id, event.author, event.text) for event in history.events()] == [
        ("noted", first.id, "ada@lab", "odd noise"),
        ("deleted", first.id, "ada@lab", "wrong model"),
    ]
    assert [entry.record.id for entry in ledger.records(with_samples=True)] == [second.id]
    assert not any(first.id.encode() in chunk.text for chunk in ledger.chunks())
    with pytest.raises(
        ConfigError, match=f"run {first.id} was deleted by ada@lab on .* \\(wrong model\\)"
    ):
        history.find("cafe")


def test_an_excluded_run_comes_back_as_it_was_with_its_samples(ledger):
    """An included run comes back with its samples as it was before its exclusion.

    Every sink receives it, because its row is new; a field that this version does not know is kept.
    """
    record = make_record(id="cafe" * 8, session=5, seq=1)
    sent = arrival(record)
    sent = sent._replace(payload=sent.payload[:-1] + b',"humidity_ratio":0.5}')
    ledger.commit([sent, arrival(make_record(session=5, seq=2))])
    history = LedgerRuns(ledger)
    history.withdraw(record.id, "excluded", "ada@lab", "throttled")
    assert (history.find("cafe"), history.is_counted(record.id)) == (record.id, False)
    assert [run.state for run in history.runs({})] == ["counted", "excluded"]
    assert history.entry(record.id, with_samples=True).record == record
    history.include(record.id, "ada@lab", "")
    assert history.is_counted(record.id)
    assert sent.payload in [payload for _, _, payload in ledger.texts(after_row=2)]
    assert ledger.ranges("pi-1", 5) == [(1, 2)]
    history.withdraw(record.id, "excluded", "ada@lab", "throttled after all")
    history.withdraw(record.id, "deleted", "ada@lab", "")
    assert [run.record.seq for run in history.runs({})] == [2]


def test_a_prefix_that_begins_several_ids_names_them(ledger):
    """A whole id is never ambiguous, and a prefix of several ids is refused with their names."""
    ids = ["ab", "abc1", "abd2"]
    ledger.commit(
        [arrival(make_record(id=name, session=5, seq=seq)) for seq, name in enumerate(ids, start=1)]
    )
    history = LedgerRuns(ledger)
    assert [history.find(prefix) for prefix in ("ab", "abd")] == ["ab", "abd2"]
    with pytest.raises(ConfigError, match=r"'a' .*ab, abc1, abd2"):
        history.find("a")
    with pytest.raises(ConfigError, match="'x'"):
        history.find("x")
    assert (short_id("f" * 32), short_id("simulated-pi5-01-0001")) == (
        "f" * 8,
        "simulated-pi5-01-0001",
    )


def test_runs_are_listed_newest_first_and_narrowed(ledger):
    """Runs are listed by the time of measuring, newest first, with filters and a limit."""
    runs = [
        make_run(device=device, model=model, session=5, seq=1, started_at_ns=at_ns * 10**18)
        for device, model, at_ns in (("pi-1", "a", 3), ("pi-2", "b", 1), ("pi-3", "a", 2))
    ]
    ledger.commit([arrival(run, 10**18) for run in runs])
    history = LedgerRuns(ledger)

    def devices(*arguments, **bounds):
        return [run.record.device for run in history.runs(*arguments, **bounds)]

    assert devices({}) == ["pi-1", "pi-3", "pi-2"]
    assert devices({"model": "a"}) == ["pi-1", "pi-3"]
    assert devices({"model": "a", "device": "pi-3"}) == ["pi-3"]
    assert devices({}, since_ns=2 * 10**18, limit=1) == ["pi-1"]
    history.withdraw(runs[0].id, "excluded", "ada@lab", "")
    assert devices({"verdict": "ok", "runtime": "onnx"}) == ["pi-1", "pi-3", "pi-2"]
    assert msgspec.json.encode(history.runs({})[0].events)
