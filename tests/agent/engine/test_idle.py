"""Facts about the idle stretches of a run: only where an energy may come of them."""

from edgemeter.agent.contract import suite
from edgemeter.agent.engine import job
from edgemeter.agent.engine.measure import may_give_energy
from edgemeter.agent.engine.scenarios.scenario import SCENARIOS
from edgemeter.agent.engine.scenarios.timing import TimingPlan


def test_a_run_idles_where_its_timed_part_may_give_an_energy(tmp_path):
    """10 s and 100 inferences are the least that an energy is given for."""
    for queries, seconds, expected_ms, batch, idles in [
        # rapid: 64 queries are too few, however long one takes.
        (64, 0.0, 0.2, 1, False),
        (64, 0.0, 1000.0, 1, False),
        # A batch is several inferences.
        (64, 0.0, 1000.0, 8, True),
        (128, 10.0, 0.2, 1, True),
        (128, 5.0, 0.2, 1, False),
        # The warm-up may be wrong by a quarter.
        (128, 8.0, 0.2, 1, True),
        (128, 0.0, 60.0, 1, True),
    ]:
        case = suite.expand(suite.SuiteFile(name="s", case=[suite.Settings(model="a.onnx")]), tmp_path).cases[0]
        work = job.RunJob(
            case=case,
            sha256="0" * 64,
            size_bytes=1,
            seed=0,
            accuracy=False,
            idle=True,
            energy_from_s=10.0,
            energy_from_inferences=100,
            spawned_ns=0,
        )
        plan = TimingPlan(queries=queries, seconds=seconds, expected_ns=int(expected_ms * 1e6), seed=0, batch=batch)
        assert may_give_energy(work, plan, SCENARIOS["single_stream"].seconds(plan)) == idles, (
            f"{queries!r}, {seconds!r}, {expected_ms!r}, {batch!r}"
        )
