"""Facts about `edgemeter.agent.verdict.run_rules` on energies and rates."""

import msgspec

from edgemeter.agent.contract.record_conditions import Scheduling
from edgemeter.agent.contract.record_figures import Neighbour, Together, UncertaintyTerm
from edgemeter.agent.verdict import judge as verdict
from edgemeter.agent.verdict.rule import SensorFaults
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_energy


def _energy(scope, power_w, u_ratio, **changes):
    """An energy of 1,000 inferences in 10 s: a watt is 10 mJ."""
    gross_mj = power_w * 10
    return make_energy(
        scope=scope,
        mean_power_w=power_w,
        gross_mj=gross_mj,
        gross_u_mj=None if u_ratio is None else gross_mj * u_ratio,
        inferences=1000,
        window_ms=10_000.0,
        **({"excludes": (), "budget": ()} | changes),
    )


def _violations(*energies):
    reasons = verdict.judge(measured(), (), energies=energies).reasons
    return [reason for reason in reasons if reason.startswith("implausible-power: ")]


def test_memory_that_grows_is_suspect_where_all_inputs_have_one_shape():
    """A library may keep more for a larger input; what is not measured is not judged."""
    runtime = measured().runtime
    shapes = msgspec.structs.replace(runtime, facts={"timed_shapes": "2, from [1] to [2]"})
    memory = measured().memory
    for grown_mb, described, is_violated in ((16.0, runtime, False), (16.1, runtime, True), (None, runtime, False), (900.0, shapes, False)):
        run = measured(memory=msgspec.structs.replace(memory, grown_mb=grown_mb), runtime=described)
        assert ("memory-grows" in verdict.judge(run, ()).rules) == is_violated


def test_memory_that_grows_in_each_third_is_suspect_by_what_an_hour_would_take():
    """Not where it came to rest, nor where a few outputs that the benchmark keeps are all of it."""
    for thirds_mb, grown_mb, is_violated in [
        ((100.0, 104.0, 108.0, 112.0), 12.0, True),
        ((100.0, 112.0, 112.0, 112.0), 12.0, False),
        ((100.0, 104.0, 108.0, 112.0), 0.1, False),
        ((100.0, 100.1, 100.2, 100.3), 0.3, False),
        ((), 12.0, False),
    ]:
        run = measured(memory=msgspec.structs.replace(measured().memory, grown_mb=grown_mb, thirds_mb=thirds_mb))
        reasons = [reason for reason in verdict.judge(run, ()).reasons if reason.startswith("memory-grows")]
        assert bool(reasons) == is_violated, thirds_mb
        assert not reasons or "grew by 12 MB, some in each third, " in reasons[0]


def test_a_part_that_draws_more_than_the_whole_is_suspect():
    """7 W of rails inside 5 W at the wall, each known to 2%: one is wrong, and the ratio is stated."""
    (reason,) = _violations(_energy("wall-ac", 5.0, 0.02), _energy("soc-rails", 7.0, 0.02))
    assert "7 W" in reason
    assert "1.4 times" in reason
    assert _violations(_energy("soc-rails", 7.0, 0.02), _energy("wall-ac", 5.0, 0.02))
    assert _violations(_energy("soc-rails", 7.0, 0.0)) == []


def test_only_sensors_that_cannot_both_be_right_are_doubted():
    """Not less than the whole, more within the uncertainties or the tenth that an unknown gain excuses, nor next to each other."""
    for wide, narrow, is_doubted in [
        (("wall-ac", 7.0, 0.02), ("soc-rails", 5.0, 0.02), False),
        (("wall-ac", 5.0, 0.03), ("module", 5.1, 0.02), False),
        (("board-input", 5.0, None), ("module", 5.4, 0.0), False),
        (("module", 5.0, 0.01), ("gpu-board", 9.0, 0.01), False),
        (("cpu-package", 5.0, 0.01), ("gpu-board", 9.0, 0.01), False),
        # Of one scope with the same left out they must agree.
        (("board-input", 5.0, 0.02), ("board-input", 6.0, 0.02), True),
        (("board-input", 5.0, 0.02), ("board-input", 5.1, 0.02), False),
    ]:
        assert bool(_violations(_energy(*wide), _energy(*narrow))) == is_doubted, f"{wide!r}, {narrow!r}"
    assert not _violations(_energy("board-input", 5.0, 0.02), _energy("board-input", 6.0, 0.02, excludes=("fan",)))
    terms = (UncertaintyTerm(term="gain", u_mj=None), UncertaintyTerm(term="offset", u_mj=0.5))
    assert _violations(_energy("board-input", 5.0, None, budget=terms), _energy("soc-rails", 6.5, 0.01))


def test_what_a_sensor_doubts_is_a_note():
    """Its warning stands in the record, and casts no doubt on latencies."""
    judgement = verdict.judge(measured(), (), power_warnings=("ina: shunt not confirmed",))
    assert "power-sensor-warning: ina: shunt not confirmed" in judgement.notes
    assert not any("power-sensor" in reason for reason in judgement.reasons)


def test_a_sensor_that_repeats_one_value_makes_the_run_suspect():
    """By a rule of its own, which also says that the sensor's step may be too coarse for the load."""
    coarse, other = _energy("wall-ac", 4.0, 0.02, sensor="plug", resolution_w=1.0), _energy("module", 3.0, 0.02, sensor="rails")
    judgement = verdict.judge(measured(), (), energies=(coarse, other), sensor_faults=SensorFaults(frozen=("plug",)))
    (reason,) = [reason for reason in judgement.reasons if reason.startswith("frozen-sensor: ")]
    assert judgement.state == "suspect"
    assert "plug showed 4 W while idle and in every reading under load" in reason
    assert "a step of 1 W hides the load" in reason
    assert "rails" not in reason
    assert not any("frozen" in reason for reason in verdict.judge(measured(), (), energies=(coarse, other)).reasons)


def test_an_energy_that_took_the_place_of_a_lost_sensor_makes_the_run_suspect():
    """A series must not move from the wall to the module in silence; without any energy its reason says all."""
    faults = SensorFaults(lost=("shelly: it does not answer",))
    (reason,) = verdict.judge(measured(), (), energies=(_energy("module", 4.0, 0.02, sensor="rails"),), sensor_faults=faults).reasons
    assert reason.startswith("lost-sensor: shelly: it does not answer; the energy is that of rails (module) instead")
    assert not any("lost-sensor" in reason for reason in verdict.judge(measured(), (), sensor_faults=faults).reasons)


def test_waiting_for_a_core_beside_another_model_is_no_doubt():
    """It is what is measured; alone it makes the run suspect."""
    waiting = Scheduling(window_ms=1000.0, ran_ms=500.0, waited_ms=500.0, preemptions=9, cores=1)
    neighbour = Neighbour(model="b", sha256="b" * 64, runtime="onnx", threads=1)
    for together, rules in ((None, ("waited-for-core",)), (Together(neighbours=(neighbour,), overlap_ms=1000.0), ())):
        run = msgspec.structs.replace(measured(scheduling=waiting), together=together)
        assert verdict.judge(run, ()).rules == rules
