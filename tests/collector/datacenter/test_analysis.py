import csv
import math
from pathlib import Path

import numpy as np
import pytest

from edgemeter.collector.datacenter import analysis
from edgemeter.collector.datacenter.analysis import analyse, million_g, server_mj, through
from edgemeter.collector.datacenter.constants import read_constants
from edgemeter.collector.datacenter.sides import Band, ComparedSide, exactly

ASSUMED = read_constants()
BY_HAND = Path(__file__).with_name("by_hand.csv")
# Eight H200 at 10,802 inferences a second and 5,019 W (MLPerf v4.1, RetinaNet), 1.4 kW idle taken
# as given: worked out by hand.
H200 = {"pue": 1.54, "idle_w": 1400.0, "max_w": 5019.0, "full_rate_per_s": 10802.0}


def make_edge(**changes):
    """Return a board of 3 W idle and 75 mJ net that can do 40 a second.

    `changes` are its fields.
    """
    fields = {
        "name": "board",
        "provenance": "measured",
        "scope": "wall-ac",
        "full_mj": Band(145.0, 150.0, 155.0),
        "idle_w": Band(2.9, 3.0, 3.1),
        "net_mj": Band(70.0, 75.0, 80.0),
        "max_w": exactly(6.0),
        "rate_per_s": exactly(40.0),
    }
    return ComparedSide(**(fields | changes))


def make_server(**changes):
    """Return a server of 300 W idle and 900 W at 6,000 a second; `changes` are its fields."""
    fields = {
        "name": "server",
        "load": "batch-saturated",
        "idle_w": Band(295.0, 300.0, 305.0),
        "max_w": Band(890.0, 900.0, 910.0),
    }
    return make_edge(**(fields | {"rate_per_s": exactly(6000.0)} | changes))


def analysed(edge=None, rate=None):
    edge = edge or make_edge()
    return analyse(edge, edge.gross_mj(rate), make_server(), ASSUMED, 100_000, 342.0)


def winners(cells, network):
    """Return the winners over the utilisations for one network."""
    return {cell.winner for cell in cells if cell.network == network}


def test_a_server_costs_the_more_the_less_it_is_used():
    """A server's idle power is shared out over what it serves."""
    for share, expected_mj in (
        (1.0, 715.5),
        (0.5, 915.1),
        (0.2, 1513.9),
        (0.1, 2511.9),
        (0.01, 20475.2),
    ):
        assert server_mj(utilisation_ratio=share, **H200) == pytest.approx(expected_mj, abs=0.1), (
            share
        )
    assert analysis.server_net_mj(**H200) == pytest.approx(1.54 * (5019 - 1400) / 10802 * 1000)


def test_an_edge_device_that_is_asked_less_costs_more():
    """At one inference a second, 3 W idle add 3 J to what the inference takes.

    Without idle power only full speed is known, and neither rate nor net.
    """
    assert (make_edge().gross_mj(1.0).value, make_edge().gross_mj(None).value) == (3075.0, 150.0)
    assert make_edge(idle_w=None, net_mj=None).gross_mj(1.0).value == 150.0
    part = analysed(edge=make_edge(idle_w=None, net_mj=None))
    assert part.net == ()
    assert {even.rate_per_s for even in part.break_even} == {None}


def test_78_figures_are_those_that_were_worked_out_by_hand():
    """Every figure agrees with a script in awk, at all corners of its inputs.

    The case is one request a second against a server of 6,000.
    """
    edge = make_edge()
    edge_mj = edge.gross_mj(1.0)
    part = analyse(edge, edge_mj, make_server(), ASSUMED, 100_000, 473.0)
    energies = {f"server at {cell.utilisation_ratio}": cell.datacenter for cell in part.gross}
    computed = {
        **energies,
        "server net": part.net[0].datacenter,
        "server spanned": Band(
            energies["server at 0.8"].low,
            energies["server at 0.8"].value,
            energies["server at 0.05"].high,
        ),
        "edge at 1/s": edge_mj,
        "edge carbon": million_g(edge_mj, 473.0),
        **{f"utilisation {even.network}": even.utilisation_ratio for even in part.break_even},
        **{f"bytes {even.network}": even.sent_bytes for even in part.break_even},
        "rate fixed-marginal": part.break_even[0].rate_per_s,
    }
    rows = list(csv.reader(BY_HAND.read_text().splitlines()))[1:]
    assert 3 * len(rows) == 78
    for name, *numbers in rows:
        band = computed[name]
        assert (band.low, band.value, band.high) == pytest.approx(
            tuple(map(float, numbers)), rel=1e-5
        ), name


def test_a_photograph_costs_two_thousand_times_more_or_less():
    """100 kB cost from 0.04 J to 86.4 J by the estimate, and a million times 3.6 J is one kWh."""
    for name, joules in (
        ("fixed-marginal", 0.04),
        ("mobile-marginal", 1.224),
        ("fixed-cloud", 0.36),
        ("mobile-gsma", 86.4),
    ):
        assert ASSUMED.network[name].mj_per_byte * 100_000 == pytest.approx(joules * 1000), name
    assert million_g(exactly(3600.0), 342.0).value == pytest.approx(342.0)


def test_the_network_decides_who_wins_at_a_low_rate():
    """At one a second the server wins at the lower end of the estimates alone.

    At 40 a second the board wins everywhere.
    """
    part = analysed(rate=1.0)
    assert winners(part.gross, "fixed-marginal") == {"datacenter"}
    assert winners(part.gross, "mobile-gsma") == {"edge"}
    assert winners(part.net, "fixed-marginal") == {"edge"}
    assert {cell.winner for cell in analysed().gross} == {"edge"}


def test_a_winner_holds_at_both_ends_of_every_band():
    """Overlapping bands name no winner, but the PUE from which on the edge wins is given."""
    part = analysed(edge=make_edge(full_mj=Band(400.0, 500.0, 600.0)))
    cell = next(
        cell
        for cell in part.gross
        if (cell.utilisation_ratio, cell.network) == (0.2, "fixed-marginal")
    )
    assert cell.winner == "either"
    assert cell.pue_from * (300 + 600 * 0.2) / (0.2 * 6000) * 1000 + 40.0 == pytest.approx(500.0)
    assert cell.carbon_g == million_g(cell.other, 342.0)


def test_at_each_break_even_both_sides_cost_the_same():
    """A break-even put back into the energies makes them equal; it is infinite if one side wins."""
    power = (1400.0, 5019.0, 10802.0)
    share = analysis.equal_utilisation(900.0, 40.0, 1.3, *power)
    assert server_mj(1.3, *power, share) + 40.0 == pytest.approx(900.0)
    assert math.isinf(analysis.equal_utilisation(100.0, 40.0, 1.54, *power))
    rate = analysis.equal_rate(3.0, 75.0, 500.0)
    assert make_edge(idle_w=exactly(3.0), net_mj=exactly(75.0)).gross_mj(
        rate
    ).value == pytest.approx(500.0)
    assert math.isinf(analysis.equal_rate(3.0, 75.0, 60.0))
    assert 300.0 + 0.18 * analysis.equal_bytes(900.0, 300.0, 0.18) == pytest.approx(900.0)
    assert analysis.equal_bytes(200.0, 300.0, 1.0) == 0.0


def test_bands_hold_every_mixture_within_them():
    """None of 500 draws from all inputs at once is outside of the band.

    A falling formula keeps the order of the ends.
    """
    inputs = (
        Band(700, 900, 1200), exactly(40), Band(1.1, 1.3, 1.6), Band(1300, 1400, 1500),
        Band(4900, 5019, 5100), Band(10000, 10802, 11000),
    )  # fmt: skip
    band = through(analysis.equal_utilisation, *inputs)
    source = np.random.default_rng(3)
    for _ in range(500):
        sampled = [float(source.uniform(entry.low, entry.high)) for entry in inputs]
        assert band.low <= analysis.equal_utilisation(*sampled) <= band.high
    assert through(lambda x: 1 / x, Band(1.0, 2.0, 4.0)) == Band(0.25, 0.5, 1.0)
