"""Facts about what `edgemeter.agent.cli.run_table` says below the table of an open loop and of a long run."""

import io

import msgspec
from rich.console import Console

from edgemeter.agent.cli import run_table
from edgemeter.agent.contract.record_figures import CurvePoint, Load, Stage, Sustained
from tests.fixtures.record_factory import make_energy, make_record


def printed(**changes):
    """Return what is printed of a run."""
    out = io.StringIO()
    run_table.print_runs([make_record(**changes)], Console(file=out, width=200))
    return out.getvalue()


LOAD = Load(
    samples_per_query=1,
    samples=64,
    target_per_s=20.0,
    achieved_per_s=19.5,
    utilisation_ratio=0.36,
    is_sustained=True,
    queueing=Stage(count=64, mean_ms=5.0, p50_ms=1.75, p90_ms=9.0),
)


def test_a_rate_that_was_sustained_states_how_long_queries_waited():
    """Utilisation and queueing stand below the table."""
    assert "sustained: 20 queries a second of tiny-detector: busy 36% of the time, they waited 1.75 ms (p50)" in printed(load=LOAD)


def test_a_rate_that_was_not_sustained_is_stated_plainly():
    """The latencies of an overloaded queue grow with the time that it is watched: the note states that."""
    text = printed(load=msgspec.structs.replace(LOAD, is_sustained=False, utilisation_ratio=1.8, unserved=12))
    assert "not sustained: 20 queries a second of tiny-detector: busy 180% of the time, 12 never served" in text
    assert "offer a lower rate" in text


def test_a_server_s_users_are_counted_and_its_queue_is_not_guessed():
    """What waits inside a server is not seen, nor how busy it was: the note says how many were there at once."""
    users = msgspec.structs.replace(LOAD, utilisation_ratio=None, in_flight_max=7)
    text = printed(load=users)
    assert "sustained: 20 queries a second of tiny-detector: up to 7 at once" in text
    assert "waited" not in text


def test_a_long_run_states_whether_it_held():
    """Half an hour at the level of the first minute, or the moment when it was left."""
    curve = Sustained(interval_s=10.0, points=(CurvePoint(t_s=0.0, queries=9, p50_ms=5.0),) * 180, level_p50_ms=5.0)
    assert "tiny-detector held its first minute's 5 ms for 30 min" in printed(sustained=curve)
    hot = msgspec.structs.replace(curve, throttled_after_s=420.0, evidence="from 420 s on p50 is above 5.25 ms")
    assert "tiny-detector throttled after 420 s: from 420 s on p50 is above 5.25 ms" in printed(sustained=hot)
    assert "too short for a level" in printed(sustained=msgspec.structs.replace(curve, level_p50_ms=None))


def test_a_closed_loop_has_no_such_note():
    """Nothing was offered at a rate."""
    assert "sustained" not in printed(load=Load(samples_per_query=1, samples=64))


def test_energies_of_several_sensors_stand_beside_each_other():
    """Below the table: the other meter's figure and its share of the power, and why a third gave none."""
    other = make_energy(sensor="pmic", scope="soc-rails", gross_mj=50.0, mean_power_w=4.0)
    text = printed(other_energies=(other,), other_energy_reasons=("plug: too slow",))
    assert "also 50 ±1.2 mJ gross by pmic (soc-rails), 0.80 of what ina219 (board-input) sees" in text
    assert "no energy from plug: too slow" in text


def test_a_net_energy_that_is_lost_names_what_would_resolve_it():
    """How long, or that no length would do."""
    lost = make_energy(net_mj=None, net_state="not_resolvable", resolving_window_s=340.0)
    assert "idle and load of 340 s each would resolve it" in printed(energy=lost)
    assert "a longer run would not resolve it" in printed(energy=msgspec.structs.replace(lost, resolving_window_s=None))


def test_an_energy_states_what_it_includes_and_its_uncertainty():
    """Uncertainty beside the figure, scope and what is left out below the table; what nobody knows is a question mark and no zero."""
    text = printed(energy=make_energy(excludes=("power-supply loss",)))
    assert "62.5 ±1.2" in text
    assert "30 ±2" in text
    assert "energy by ina219, board-input: leaves out power-supply loss" in text
    unsure = printed(energy=make_energy(gross_u_mj=None, net_u_mj=None, scope="wall-ac", excludes=()))
    assert "62.5 ±?" in unsure
    assert "energy by ina219, wall-ac: leaves out nothing; how sure (±?) is not known before `edgemeter sensors calibrate`" in unsure
