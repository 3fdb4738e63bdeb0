from statistics import geometric_mean

import pytest

from edgemeter.collector.compare.boards import fold_boards, worst_board
from edgemeter.collector.compare.figure_differences import why_not_compared
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_accuracy, make_energy, make_environment, violating

PI, ORIN = make_environment(board="Raspberry Pi 5"), make_environment(board="Jetson Orin Nano")


def boards(number, environment=PI, **changes):
    """Return a run of each of so many equal boards, each 0.1 ms slower than the one before."""
    fields = {"environment": environment, **changes}
    return [
        make_run(f"pi-{n:02}", id=f"{environment.board} {n}", **({"p50_ms": 10 + n / 10} | fields))
        for n in range(number)
    ]


def rows_of_several(*runs):
    return [row for row in fold_boards(compare_runs(*runs, make_reference())).rows if row.boards]


def test_equal_boards_are_one_row_with_the_mean_over_boards():
    """Each board's own mean enters, so a board with many runs counts once."""
    many = [make_run("pi-00", environment=PI, p50_ms=10.0, id=f"more {n}") for n in range(20)]
    (row,) = rows_of_several(*boards(24), *many)
    p50_ms = row.case.p50_ms
    assert (len(row.boards), p50_ms.evidence.unit, p50_ms.evidence.units) == (24, "device", 24)
    assert p50_ms.value == pytest.approx(geometric_mean(10 + n / 10 for n in range(24)))
    assert p50_ms.low < p50_ms.value < p50_ms.high
    assert row.decisions["latency_p50_ms"].value == pytest.approx(p50_ms.value / 2.0)
    assert worst_board(row, "latency_p50_ms").case.key.device == "pi-23"


def test_boards_one_of_which_takes_0_ms_have_no_ratio():
    """There is no ratio even where the median over the boards is above 0."""
    still = make_run("pi-99", environment=PI, p50_ms=0.0, id="still", latencies_ms=[])
    (row,) = rows_of_several(*boards(4), still)
    assert row.case.p50_ms.value > 0
    assert (
        why_not_compared("latency_p50_ms", row.case, row.reference)
        == "one side is 0, which has no ratio"
    )


def test_only_what_is_equal_in_everything_but_the_device_is_one_row():
    """Boards that differ in more than the device are rows of their own.

    They have another type, threads, precision or meter, or are unknown.
    """
    apart = [
        make_run("a", environment=ORIN, id="a"),
        make_run("b", environment=PI, threads=4, id="b"),
        make_run("c", environment=PI, precision="int8", id="c"),
        make_run("d", environment=PI, energy=make_energy(scope="wall-ac"), id="d"),
        make_run("e", environment=PI, id="e", **no_energy()),
        make_run("f", environment=PI, fleet="another", id="f"),
        *(
            make_run(f"g{n}", environment=make_environment(board=None), id=f"g{n}")
            for n in range(4)
        ),
    ]
    (row,) = rows_of_several(*boards(5), *apart)
    assert {board.case.key.device for board in row.boards} == {f"pi-{n:02}" for n in range(5)}


def test_the_bounds_of_an_accuracy_are_those_of_the_board_in_the_middle():
    """The newest board scores .04 less, and the row names it as the worst.

    The row has neither its value nor its bounds.
    """
    right, wrong = (
        make_accuracy(value=value, low=value - 0.006, high=value + 0.006) for value in (0.74, 0.70)
    )
    runs = [
        *boards(4, accuracy=right),
        make_run(
            "pi-99", id="pi-99", environment=PI, p50_ms=10.5, started_at_ns=2**61, accuracy=wrong
        ),
    ]
    (row,) = rows_of_several(*runs)
    scored = row.case.figures["accuracy_value"]
    assert (row.case.accuracy.value, scored.value, scored.low, scored.high) == pytest.approx(
        (0.74, 0.74, 0.734, 0.746)
    )
    assert worst_board(row, "accuracy_value").case.key.device == "pi-99"


def test_two_boards_stay_two_rows_and_so_does_the_baseline():
    """The median of two is half of each; a board that is compared with is named."""
    comparison = compare_runs(
        *boards(2),
        *(make_reference(device=f"server-{n}", environment=ORIN, id=f"s{n}") for n in range(3)),
    )
    assert not any(row.boards for row in fold_boards(comparison).rows)


def test_a_doubted_board_is_counted_among_those_of_its_row():
    """With one of three disturbed, the row is neither all disturbed nor undisturbed."""
    doubted = violating("disturbed", "throttled")
    (row,) = rows_of_several(*boards(2), make_run("hot", environment=PI, id="hot", verdict=doubted))
    assert (row.case.disturbed, [violation.rule for violation in row.case.violated]) == (
        1,
        ["throttled"],
    )
