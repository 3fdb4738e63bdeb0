"""Facts about `edgemeter.agent.energy.power_log`; the energies are worked out by hand."""

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.energy.power_log import energy_of, read_log
from tests.fixtures.rows import table_row

JETSON = (
    "RAM 2147/7620MB (lfb 2x4MB) CPU [0%@729] GR3D_FREQ 0% cpu@47.6C VDD_IN {0}mW/{0}mW "
    "VDD_CPU_GPU_CV 483mW/483mW VDD_SOC 1451mW/1451mW"
)


@pytest.fixture
def logged(tmp_path):
    def energy(*lines, between=None, **columns):
        path = tmp_path / "power.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return energy_of(read_log(path, **columns), between)

    return energy


def test_the_energy_is_that_of_trapezoids_and_the_interval_holds_what_lies_between(logged):
    """5, 7 and 9 W, a second apart, are 6 + 8 J: at least 5 + 7 and at most 7 + 9 J.

    The digits add 0.5 mW for 2 s and 1 ms of the change of 4 W, of 5 W and of 9 W.
    """
    result = logged(
        *(
            f"170000000{second}.000 {JETSON.format(power_mw)}"
            for second, power_mw in enumerate((5000, 7000, 9000))
        )
    )
    assert (
        result.energy_j,
        result.mean_power_w,
        result.window_s,
        result.coverage_ratio,
    ) == pytest.approx((14, 7, 2, 1))
    assert (result.low_j, result.high_j) == pytest.approx((12 - 0.001 - 0.018, 16 + 0.001 + 0.018))
    assert (
        result.source
        == "VDD_IN (module, without carrier board, USB devices, fan, power-supply loss)"
    )


UNEVEN = ("t_s,power_w", "0,2", "1,4", "4,4", "4.5,8")


WINDOWS = [
    # 3 + 12 + 3 J.
    (None, 18, 1),
    # From 3 to 4 W, and at 4 W: 1.75 + 4 J.
    (("0.5", "2"), 5.75, 1),
    # A twentieth of the window lies before the log: the 18 J of all of it.
    (("-0.1", "4.5"), 18, 45 / 46),
    (("4", "4.52"), 3, 25 / 26),
]


def test_a_window_is_cut_out_of_uneven_stamps(logged):
    """Within a step the power is interpolated; what the log does not cover adds nothing."""
    for between, energy_j, coverage_ratio in WINDOWS:
        with table_row(between, energy_j, coverage_ratio):
            result = logged(*UNEVEN, between=between, time_column="t_s", power_column="power_w")
            assert (result.energy_j, result.coverage_ratio) == pytest.approx(
                (energy_j, coverage_ratio)
            )


def test_nothing_is_counted_where_readings_are_missing(logged):
    """2 W over 100 s, of which 5 s are missing, are 190 J over 95 s.

    If more than a tenth is missing there is no energy. A failed reading leaves no gap.
    """
    lines = ["t,p", *(f"{second},2" for second in range(101) if not 50 < second < 55)]
    result = logged(*lines, time_column="t", power_column="p")
    assert (result.energy_j, result.mean_power_w, result.coverage_ratio) == pytest.approx(
        (190, 2, 0.95)
    )
    with pytest.raises(
        UnavailableError, match="cover 3 s of these 11 s; the log is from 0 s to 11 s"
    ):
        logged("t,p", "0,2", "1,2", "2,2", "10,2", "11,2", time_column="t", power_column="p")
    nvidia = [
        f"2026/05/22 11:00:0{second}.000, {power}"
        for second, power in enumerate(("2.00 W", "2.00 W", "[N/A]", "2.00 W"))
    ]
    assert logged("timestamp, power.draw [W]", *nvidia).coverage_ratio == 1


def test_readings_of_one_stamp_are_taken_together(logged):
    """Readings with the same whole-second stamp are averaged.

    Two a second give means of 3 and 5 W, which are 4 J; the interval holds 2 to 6 W, and a second
    at either end.
    """
    lines = [
        f"06-16-2023 10:45:0{second} {JETSON.format(power_mw)}"
        for second, power_mw in ((0, 2000), (0, 4000), (1, 4000), (1, 6000))
    ]
    result = logged(*lines)
    assert (result.energy_j, result.readings, result.window_s) == pytest.approx((4, 4, 1))
    assert (result.low_j, result.high_j) == pytest.approx((2 - 0.0005 - 10, 6 + 0.0005 + 10))


def test_the_gpus_of_a_log_are_added_up(logged):
    """100 W and 50 W for 1 s each are added by index; without an index it is refused."""
    lines = [
        f"2026/05/22 11:00:0{second}.000, {index}, {power}"
        for second in (0, 1)
        for index, power in ((0, "100.0 W"), (1, "50.0 W"))
    ]
    result = logged("timestamp, index, power.draw [W]", *lines)
    assert (result.energy_j, result.mean_power_w, result.source) == (
        pytest.approx(150),
        pytest.approx(150),
        "power.draw [W] of 2 GPUs",
    )
    with pytest.raises(ConfigError, match="of several GPUs: log `nvidia-smi --query-gpu="):
        logged(
            "timestamp, power.draw [W]",
            *(line.replace(", 0, ", ", ").replace(", 1, ", ", ") for line in lines),
        )


TABLES = [
    (("Time (ms);Power [mW]", "0;2000", "500;4000", "1000;2000"), ("time", "power")),
    (("t_s;P_W", "0,0;2,0", "0,5;4,0", "1,0;2,0"), ("t_s", "P_W")),
    (('t_s,"power"', '"0,0","2,0"', '"0,5","4,0"', '"1,0","2,0"'), ("t_s", "power")),
    (("at,power", "1700000000000,2", "1700000000500,4", "1700000001000,2"), ("at", "power")),
    (("# by a meter", "#at\tpower", "0 s\t2 W", "0.5 s\t4000 mW", "1 s\t2 W"), ("at", "power")),
    (
        (
            "at,w",
            "2026-05-22T11:00:00Z,2",
            "2026-05-22T13:00:00.5+02:00,4",
            "2026-05-22T11:00:01Z,2",
        ),
        ("at", "w"),
    ),
    (("at,w", "May 22 23:59:59.5,2", "May 23 00:00:00,4", "May 23 00:00:00.5,2"), ("at", "w")),
]


def test_columns_are_read_by_name_whatever_their_units_and_signs(logged):
    """2, 4 and 2 W, half a second apart, are 3 J in every form."""
    for lines, columns in TABLES:
        with table_row(columns, lines[0]):
            result = logged(*lines, time_column=columns[0], power_column=columns[1])
            assert (result.energy_j, result.window_s) == pytest.approx((3, 1))


def test_a_window_is_named_as_the_log_stamps_or_by_the_clock_of_its_first_day(logged):
    """A date without a zone is in the log's own zone.

    One with a zone is in no log without. The power is 2 W throughout.
    """
    lines = [f"2026-05-22T{hour}:00:00+02:00,2" for hour in (10, 11, 12)]
    for between in (("10:00", "12:00"), ("2026-05-22 10:00:00", "2026-05-22T10:00:00Z")):
        result = logged("at,w", *lines, between=between, time_column="at", power_column="w")
        with table_row(between):
            assert (result.energy_j, result.window_s) == (pytest.approx(14_400), 7200)
    bare = [line.replace("+02:00", "") for line in lines]
    with pytest.raises(
        ConfigError, match="whose timestamps are dates without a zone: write it in their form"
    ):
        logged(
            "at,w",
            *bare,
            between=("2026-05-22T10:00:00Z", "11:00"),
            time_column="at",
            power_column="w",
        )


def test_a_window_is_in_the_unit_of_the_stamps(logged):
    """The column and the window are in ms, and 4 W last for a second."""
    lines = [f"{1000 * second},{4 if 10 <= second < 20 else 2}" for second in range(31)]
    assert logged(
        "t_ms,p", *lines, between=("11000", "12000"), time_column="t_ms", power_column="p"
    ).energy_j == pytest.approx(4)


UNCLEAR = [
    (("t,p", "0,2"), None, "readings of p cover 0 s of these 0 s"),
    (UNEVEN, ("9", "10"), "cover 0 s of these 1 s; the log is from 0 s to 4.5 s: give a time"),
    (UNEVEN, ("-1", "1"), "cover 1 s of these 2 s"),
    (("t,p", "0,-6", "1,-6"), None, "p is 0 W or less: the meter is reversed"),
    (UNEVEN, ("2", "1"), "'1' is not after '2'"),
    (UNEVEN, ("noon", "1"), "'noon' is no time of this log, whose timestamps are numbers"),
    (("t,p", "5,2", "6,2", "4,2"), None, "go backwards, by 2 s"),
    (("t,p", "5,2", "2026-05-22 10:00:00,2"), None, "mixes numbers and dates as timestamps"),
    (("t,p", "0,[N/A]", "1,[N/A]"), None, "has no line with a time and a power of p"),
    (("t,p [mA]", "0,5", "1,5"), None, "is in another unit"),
    (("t,volts", "0,5", "1,5"), None, "begins with 't,volts': name two of its columns"),
    (("t,p", f"0,{'9' * 200_000}"), None, "cannot read the log .*field larger"),
    ((), None, "is empty: log to it first"),
]


def test_what_a_log_does_not_show_is_refused(logged):
    """Each refusal is one line."""
    for lines, between, reason in UNCLEAR:
        with table_row(reason):
            time, power = ("t_s", "power_w") if lines is UNEVEN else ("t", "p")
            with pytest.raises((ConfigError, UnavailableError), match=reason) as refusal:
                logged(*lines, between=between, time_column=time, power_column=power)
            assert "\n" not in str(refusal.value)
