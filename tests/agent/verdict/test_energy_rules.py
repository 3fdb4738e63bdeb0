from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_energy


def energy(scope, power_w, u_ratio, **changes):
    """Return an energy of 1,000 inferences in 10 s: a watt is 10 mJ."""
    gross_mj = power_w * 10
    return make_energy(
        scope=scope,
        mean_power_w=power_w,
        gross_mj=gross_mj,
        gross_u_mj=None if u_ratio is None else gross_mj * u_ratio,
        window_ms=10_000.0,
        **({"excludes": ()} | changes),
    )


def judged(*energies, **facts):
    return judge(Facts(measured(), energies=energies, **facts))


def test_a_part_that_draws_more_than_the_whole_disturbs_the_run():
    """7 W of rails inside 5 W at the wall, each known to 2%, cannot both be right.

    The order of the sensors does not matter.
    """
    pair = (
        energy("wall-ac", 5.0, 0.02, sensor="plug"),
        energy("soc-rails", 7.0, 0.02, sensor="rails"),
    )
    for energies in (pair, pair[::-1]):
        (violation,) = judged(*energies).violations
        assert (violation.rule, violation.numbers) == (
            "implausible-power",
            {"power_w": 7.0, "other_power_w": 5.0},
        )
        assert violation.subject == "rails (soc-rails) against plug (wall-ac)"


def test_only_sensors_that_cannot_both_be_right_are_doubted():
    """A part may draw less than the whole, or more within the uncertainties.

    An unknown gain excuses a tenth. Sensors next to each other are not compared.
    """
    for wide, narrow, is_doubted in [
        (("wall-ac", 7.0, 0.02), ("soc-rails", 5.0, 0.02), False),
        (("wall-ac", 5.0, 0.03), ("module", 5.1, 0.02), False),
        (("board-input", 5.0, None), ("module", 5.4, 0.0), False),
        (("module", 5.0, 0.01), ("gpu-board", 9.0, 0.01), False),
        (("cpu-package", 5.0, 0.01), ("gpu-board", 9.0, 0.01), False),
        # Sensors of one scope with the same exclusions must agree.
        (("board-input", 5.0, 0.02), ("board-input", 6.0, 0.02), True),
        (("board-input", 5.0, 0.02), ("board-input", 5.1, 0.02), False),
    ]:
        assert bool(judged(energy(*wide), energy(*narrow)).violations) == is_doubted, (
            f"{wide!r}, {narrow!r}"
        )
    assert (
        judged(
            energy("board-input", 5.0, 0.02), energy("board-input", 6.0, 0.02, excludes=("fan",))
        ).violations
        == ()
    )
    assert judged(energy("board-input", 5.0, None), energy("soc-rails", 6.5, 0.01)).rules == (
        "implausible-power",
    )


def test_what_a_sensor_warns_of_is_a_note():
    """A sensor's warning casts no doubt on latencies."""
    verdict = judged(power_warnings=("ina: shunt not confirmed",))
    assert (verdict.state, [(note.rule, note.subject) for note in verdict.notes]) == (
        "ok",
        [("power-sensor-warning", "ina: shunt not confirmed")],
    )


def test_an_energy_that_took_the_place_of_a_lost_sensor_disturbs_the_run():
    """A series must not move from the wall to the module in silence.

    Without any energy its reason says all.
    """
    lost = ("shelly, it does not answer",)
    (violation,) = judged(energy("module", 4.0, 0.02, sensor="rails"), lost_sensors=lost).violations
    assert (violation.rule, violation.subject) == ("lost-sensor", "shelly, it does not answer")
    assert judged(lost_sensors=lost).violations == ()
