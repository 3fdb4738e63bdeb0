"""Facts about `edgemeter.agent.energy.outlook`."""

from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.outlook import shortcoming
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import Window
from tests.fixtures.power_traces import S, make_description, make_trace
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case


def test_what_a_mode_cannot_resolve_is_known_before_with_the_mode_that_can():
    """By the lengths of the mode and the period of the sensor alone."""
    for mode, period_ms, lacks, remedy in [
        ("quick", 200, None, None),
        ("quick", 1000, "no energy, unless a query takes 0.391 s or more", "use mode normal"),
        ("rapid", 100, "no energy;", "use mode quick"),
        ("normal", 6000, "no energy, unless", "use mode full with idle_seconds = 84, in a suite"),
        ("full", 6000, "no net energy", "set idle_seconds = 84 in a suite"),
        ("full", 100_000, "no energy, unless", "set seconds = 5000 and idle_seconds = 1400 in a suite"),
    ]:
        reason = shortcoming(one_case("a.onnx", mode=mode), make_description(period_ms=float(period_ms)))
        assert (reason is None) == (lacks is None), f"{mode!r}, {period_ms!r}"
        assert lacks is None or (f"there will be {lacks}" in reason and reason.endswith(remedy)), f"{mode!r}, {period_ms!r}"


def test_it_predicts_what_the_energy_is_refused_for_afterwards():
    """The same run, measured: refused, without net energy, or both, as predicted; so there is one rule."""
    for mode in ["quick", "normal", "full"]:
        for period_ms in [200.0, 1000.0, 6000.0]:
            with table_row(mode, period_ms):
                case = one_case("a.onnx", mode=mode)
                warning = shortcoming(case, make_description(period_ms=period_ms))
                idle_ns, timed_ns = int((case.idle_seconds + 0.01) * S), int(case.seconds * S)
                before, timed = Window(0, idle_ns), Window(idle_ns, idle_ns + timed_ns)
                after = Window(timed.end_ns, timed.end_ns + idle_ns)
                trace = make_trace(
                    lambda t, timed=timed: 5.0 if timed.start_ns <= t * S < timed.end_ns else 2.0,
                    after.end_ns / S,
                    seed=1,
                    period_ms=period_ms,
                )
                energy, reason = per_inference.assess(trace, EnergyRun(timed, before, after, 100_000))
                assert (energy is None) == (warning is not None and "there will be no energy" in warning), reason
                if energy is not None:
                    assert (energy.net_state == "no_idle") == (warning is not None and "there will be no net energy" in warning)
