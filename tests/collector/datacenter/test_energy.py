import math

import msgspec
import numpy as np
import pytest

from edgemeter.collector.datacenter import constants, formulas
from edgemeter.collector.datacenter.constants import Hardware, Link
from edgemeter.collector.datacenter.formulas import Band, exactly, through
from tests.fixtures.rows import table_row

# Eight H200 at 10,802 inferences a second and 5,019 W (MLPerf v4.1, RetinaNet), 1.4 kW idle taken as given: worked out by hand.
H200 = {"pue": 1.54, "idle_w": 1400.0, "max_w": 5019.0, "full_rate_per_s": 10802.0}


def test_a_server_costs_the_more_the_less_it_is_used():
    """Its idle power is shared out over what it serves."""
    for share, expected_mj in ((1.0, 715.5), (0.5, 915.1), (0.2, 1513.9), (0.1, 2511.9), (0.01, 20475.2)):
        assert formulas.datacenter_mj(utilisation_ratio=share, **H200) == pytest.approx(expected_mj, abs=0.1), share


def test_net_energy_is_the_same_at_every_utilisation():
    """What one more inference adds: the limit of the gross energy without idle power."""
    net = formulas.datacenter_net_mj(**H200)
    assert net == pytest.approx(1.54 * (5019 - 1400) / 10802 * 1000)
    assert formulas.datacenter_mj(1.54, 0.0, 5019 - 1400, 10802, 0.05) == pytest.approx(net)


def test_a_photograph_costs_two_thousand_times_more_or_less():
    """100 kB by each estimate, in joules."""
    networks = constants.read_constants().network
    for name, joules in (
        ("fixed-marginal", 0.04),
        ("mobile-marginal", 1.224),
        ("fixed-cloud", 0.36),
        ("fixed-carbon-trust", 2.34),
        ("fixed-traficom", 18.0),
        ("mobile-traficom", 43.2),
        ("mobile-gsma", 86.4),
    ):
        assert formulas.network_mj(networks[name], 100_000) == pytest.approx(joules * 1000), name


def test_an_edge_device_that_is_asked_less_costs_more():
    """3 W idle at one inference a second is 3 J and what the inference adds."""
    assert formulas.edge_mj(3.0, 75.0, 1.0) == pytest.approx(3075.0)
    assert formulas.edge_mj(3.0, 75.0, 40.0) == pytest.approx(150.0)


def test_at_the_break_even_utilisation_both_sides_cost_the_same():
    """The formula put back into the energies, for the best values and at both ends of the band."""
    network_mj, edge_mj = 40.0, 900.0
    band = formulas.break_even_utilisation(
        exactly(edge_mj), exactly(network_mj), Band(1.1, 1.3, 1.6), exactly(1400.0), exactly(5019.0), exactly(10802.0)
    )
    for share, pue in ((band.low, 1.1), (band.value, 1.3), (band.high, 1.6)):
        server_mj = formulas.datacenter_mj(pue, 1400.0, 5019.0, 10802.0, share)
        assert server_mj + network_mj == pytest.approx(edge_mj)


def test_an_edge_below_the_servers_own_work_wins_at_any_utilisation():
    """There is no break-even, and that is infinite and not negative."""
    band = formulas.break_even_utilisation(*map(exactly, (100.0, 40.0, 1.54, 1400.0, 5019.0, 10802.0)))
    assert math.isinf(band.value)


def test_at_the_break_even_rate_both_sides_cost_the_same():
    """And where the network is dearer than the edge's own work the rate exists; where it is cheaper it does not."""
    band = formulas.break_even_rate_per_s(exactly(3.0), exactly(75.0), exactly(500.0))
    assert formulas.edge_mj(3.0, 75.0, band.value) == pytest.approx(500.0)
    assert math.isinf(formulas.break_even_rate_per_s(exactly(3.0), exactly(75.0), exactly(60.0)).value)


def test_at_the_break_even_bytes_both_sides_cost_the_same():
    """A cheaper edge needs none."""
    network = constants.read_constants().network["fixed-traficom"]
    band = formulas.break_even_sent_bytes(exactly(900.0), exactly(300.0), exactly(formulas.mj_per_byte(network)))
    assert 300.0 + formulas.network_mj(network, band.value) == pytest.approx(900.0)
    assert formulas.break_even_sent_bytes(exactly(200.0), exactly(300.0), exactly(1.0)).high == 0.0


def test_the_break_even_pue_is_where_both_cost_the_same():
    """Below 1 there is none: the edge wins at every PUE."""
    it_mj = formulas.datacenter_mj(1.0, 1400.0, 5019.0, 10802.0, 0.2)
    pue = formulas.break_even_pue(1500.0, 40.0, it_mj)
    assert pue * it_mj + 40.0 == pytest.approx(1500.0)
    assert formulas.break_even_pue(10.0, 40.0, it_mj) is None


def test_bands_hold_every_mixture_within_them():
    """2,000 draws from all inputs at once, none outside; the ends are reached at corners."""
    inputs = (
        Band(700, 900, 1200),
        Band(40, 40, 40),
        Band(1.1, 1.3, 1.6),
        Band(1300, 1400, 1500),
        Band(4900, 5019, 5100),
        Band(10000, 10802, 11000),
    )
    band = formulas.break_even_utilisation(*inputs)
    source = np.random.default_rng(3)
    for _ in range(2000):
        sampled = [exactly(float(source.uniform(entry.low, entry.high))) for entry in inputs]
        assert band.low <= formulas.break_even_utilisation(*sampled).value <= band.high


def test_a_band_through_a_falling_formula_keeps_its_order():
    """The low end of the result stays below the high end."""
    assert through(lambda x: 1 / x, Band(1.0, 2.0, 4.0)) == Band(0.25, 0.5, 1.0)


def test_a_million_inferences_cost_what_their_energy_and_hardware_do():
    """A million of 3.6 J are one kWh; 95 EUR over five years at two a second."""
    assumed = constants.read_constants()
    cost = formulas.million("edge", exactly(3600.0), 2.0, assumed, "DE")
    assert cost.electricity.value == pytest.approx(0.2872)
    assert cost.carbon_g.value == pytest.approx(342.0)
    assert cost.hardware is None
    priced = Hardware(price=95.0, life_years=5.0, source="x", year=2026)
    assumed = msgspec.structs.replace(assumed, hardware=constants.Prices(edge=priced))
    cost = formulas.million("edge", exactly(3600.0), 2.0, assumed, "DE")
    assert cost.hardware == pytest.approx(1e6 * 95 / (5 * 365.25 * 86400 * 2))


def simulated_ms(batch, service_s, arrivals_s):
    """Return the mean time from arrival to result of a server that begins a batch once it is full: of all, and of the first of a batch."""
    free_s, responses = 0.0, []
    for first in range(0, len(arrivals_s) - batch + 1, batch):
        members = arrivals_s[first : first + batch]
        free_s = max(members[-1], free_s) + service_s
        responses.append([free_s - arrived for arrived in members])
    return 1000 * np.mean(responses), 1000 * np.mean(responses, axis=0)[0]


def test_a_response_of_a_batch_server_includes_the_time_to_fill_its_batch():
    """Request by request, at random and evenly spaced; 16 at 50 a second wait 150 ms on average, the first of them 300 ms."""
    link = Link(uplink_mbit_per_s=20.0, rtt_ms=(0.0, 0.0), source="x", year=2026)
    assert (formulas.fill_ms(16, 50.0), formulas.fill_ms(1, 50.0)) == (150.0, 0.0)
    draw = np.random.default_rng(2)
    for batch, share in ((1, 0.5), (4, 0.2), (4, 0.8), (16, 0.25), (16, 0.8)):
        with table_row(batch, share):
            full_rate_per_s = 200.0
            service_s = batch / full_rate_per_s
            gaps_s = draw.exponential(1 / (share * full_rate_per_s), 40_000)
            stated_ms = formulas.response_ms(link, 0, service_s * 1000, full_rate_per_s, share, batch).value
            at_random_ms, _ = simulated_ms(batch, service_s, np.cumsum(gaps_s).tolist())
            assert 0.97 * at_random_ms < stated_ms < 1.07 * at_random_ms
            evenly_ms, first_ms = simulated_ms(batch, service_s, (np.arange(40_000) / (share * full_rate_per_s)).tolist())
            filled_ms = formulas.fill_ms(batch, share * full_rate_per_s)
            assert evenly_ms == pytest.approx(filled_ms + service_s * 1000)
            assert first_ms == pytest.approx(2 * filled_ms + service_s * 1000)


def test_a_response_is_upload_round_trip_queue_and_service():
    """100 kB at 20 Mbit/s are 40 ms; half busy, a queue of 5 ms services is 2.5 ms long."""
    link = Link(uplink_mbit_per_s=20.0, rtt_ms=(10.0, 30.0), source="x", year=2026)
    band = formulas.response_ms(link, 100_000, 8.0, 200.0, 0.5)
    assert (band.low, band.value, band.high) == (pytest.approx(60.5), pytest.approx(70.5), pytest.approx(80.5))
    assert math.isinf(formulas.response_ms(link, 100_000, 8.0, 200.0, 1.0).value)
