"""Facts about `edgemeter.agent.session.energy_outlook`."""

from edgemeter.agent.session.energy_outlook import shortcoming
from tests.fixtures.power_traces import make_description
from tests.fixtures.run_jobs import one_case


def test_what_a_mode_cannot_resolve_is_known_before_with_the_mode_that_can():
    """By the lengths of the mode and the period of the sensor alone."""
    for mode, period_ms, lacks, remedy in [
        ("quick", 1000, None, None),
        ("quick", 5000, "no energy, unless a query takes 0.391 s or more", "use mode full"),
        ("rapid", 100, "no energy, unless a query takes 0.0156 s or more", "use mode quick"),
        ("normal", 6000, "no net energy", "set idle_seconds = 42 in a suite"),
        ("full", 100_000, "no energy, unless", "use mode sustained with idle_seconds = 700, in a suite"),
    ]:
        reason = shortcoming(one_case("a.onnx", mode=mode), make_description(period_ms=float(period_ms)))
        assert (reason is None) == (lacks is None), f"{mode!r}, {period_ms!r}"
        assert lacks is None or (f"there will be {lacks}" in reason and reason.endswith(remedy)), f"{mode!r}, {period_ms!r}"
