"""Test two sides: a case is compared with its own earlier runs, and no other replaces it."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.compare.between import between, read_side
from edgemeter.collector.compare.figure_differences import why_not_compared
from edgemeter.collector.runs.contents import StoreContents
from tests.fixtures.bundle_factory import write_bundle
from tests.fixtures.comparison_factory import document, document_at
from tests.fixtures.ledgers import fill
from tests.fixtures.level_factory import level_runs, stepped_ms
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side


def compared(before, after, **options):
    return between(
        ("before", StoreContents(before)), ("after", StoreContents(after)), **options
    ).comparison


def test_no_other_baseline_takes_the_place_of_one_that_is_missing():
    """Another precision, runtime or number of threads is another case.

    It is left out on both sides, and reported.
    """
    for other in (
        {"precision": "int8"},
        {"runtime": "litert"},
        {"threads": 4},
        {"scenario": "offline"},
        {"data": "0b" * 32},
        {"model": "b"},
    ):
        with table_row(other):
            before = [*make_side(agent="1", **other), *make_side(agent="1", start=50, model="c")]
            result = compared(before, make_side(agent="2", start=100))
            assert result.rows == ()
            assert ["(after)" in entry.reason for entry in result.left_out] == [True, False, False]


def test_another_board_is_no_baseline_and_another_unit_of_the_same_board_is_one():
    """If no device is on both sides, boards of one type stand for each other.

    The change of device is named.
    """
    result = compared(
        make_side(agent="1", device="pi-1"), make_side(agent="1", start=100, device="pi-2")
    )
    assert result.rows[0].changed == ("device pi-1 to pi-2",)
    two = [
        *make_side(agent="1", device="pi-1"),
        *make_side(agent="1", start=50, device="pi-2", factor=2.0),
    ]
    result = compared(two, make_side(agent="2", start=100, device="pi-2", factor=2.0))
    assert result.rows[0].decisions["latency_p50_ms"].value == pytest.approx(1, abs=0.02)


def test_two_cases_that_are_not_the_same_are_compared_where_each_side_has_one():
    """Fp32 and int8 are called A and B; two versions of the agent are one case."""
    result = compared(
        make_side(agent="1"), make_side(agent="1", start=100, precision="int8", factor=0.7)
    )
    assert [row.name for row in result.rows] == ["A", "B"]
    assert result.rows[1].decisions["latency_p50_ms"].outcome == "better"
    same = compared(make_side(agent="1"), make_side(agent="2", start=100))
    assert [row.changed for row in same.rows] == [("agent 1 to 2",)]


def test_runs_on_both_sides_are_refused():
    """The same ledger twice would compare each run with itself.

    Sides that overlap have to be separated.
    """
    runs = make_side(agent="1")
    with pytest.raises(ConfigError, match="'before' and 'after' are the same 8 runs: give another"):
        compared(runs, runs)
    with pytest.raises(ConfigError, match=r"1 run on both sides, such as .*: separate"):
        compared(runs, [runs[0], *make_side(agent="2", start=100)])


def test_the_baseline_is_the_level_that_it_had_at_its_end():
    """A baseline that became 10% slower equals a new side as slow as its last level.

    It slowed down on day 40 of sixty; the runs of all days are a mixture.
    """
    before = level_runs(stepped_ms(60, 40, 1.1))
    after = level_runs(stepped_ms(20, 0, 1.1, seed=2), [60 + day for day in range(20)], seq=60)
    (row,) = compared(before, after).rows
    assert row.reference.segment.earlier == 40
    assert row.decisions["latency_p50_ms"].outcome == "no difference"
    (mixed,) = compared(before, after, days="all").rows
    assert mixed.decisions["latency_p50_ms"].value > 1.02


def test_speeds_of_two_scenarios_are_other_work():
    """The memory of a process compares between scenarios, its latency does not.

    One has one query at a time, the other all at once.
    """
    (_, row) = compared(
        make_side(agent="1"), make_side(agent="1", start=100, model="other", scenario="offline")
    ).rows
    assert set(row.decisions) == {"accuracy_value"}
    assert (
        why_not_compared("energy_gross_mj", row.case, row.reference)
        == "another scenario is other work"
    )
    assert why_not_compared("memory_peak_mb", row.case, row.reference) == ""


def test_a_side_is_a_ledger_a_document_a_bundle_or_a_folder_narrowed_by_selectors(tmp_path):
    """The first bytes of a file say its kind."""
    runs = [
        *make_side(agent="1", runs=2),
        *make_side(agent="2", runs=3, start=86_400, device="pi-2"),
    ]
    path, printed, folder = tmp_path / "ledger.sqlite", tmp_path / "runs.json", tmp_path / "bundles"
    fill(path, runs)
    printed.write_bytes(document(*runs))
    folder.mkdir()
    write_bundle(folder)
    for where in (path, printed):
        assert len(read_side(str(where)).runs) == 5
        assert len(read_side(f"{where}?device=pi-2").runs) == 3
        assert len(read_side(f"{where}?agent=1&model=tiny-detector").runs) == 2
        assert len(read_side(f"{where}?since=2024-10-05").runs) == 3
        assert len(read_side(f"{where}?until=2024-10-05").runs) == 2
    assert len(read_side(str(folder)).runs) == 1
    assert len(read_side(str(next(folder.iterdir()))).runs) == 1


def test_a_selector_that_selects_nothing_is_refused(tmp_path):
    """A typing error must not become an empty baseline."""
    path = document_at(tmp_path / "runs.json", *make_side(agent="1", runs=1))
    for selector in ("?x=1", "?", "?device", "?since=yesterday", "?device=nobody"):
        with (
            table_row(selector),
            pytest.raises(ConfigError, match=r"selector|not a time|to compare"),
        ):
            read_side(f"{path}{selector}")
