"""Facts about `edgemeter.collector.choose.further_runs`."""

import msgspec

from edgemeter.agent.contract.figures import FIGURES
from edgemeter.agent.contract.record_figures import Load
from edgemeter.collector.choose.further_runs import command_of
from tests.fixtures.record_factory import make_record, make_runtime, make_steady


def test_the_command_has_the_backend_that_was_asked_for():
    """A record names with it what was computed in, which no runtime takes as a backend."""
    for recorded, backend in {"gpu,auto": "gpu", "gpu,cpu,auto": "gpu,cpu", "cpu,fp16": "cpu", "cuda": "cuda"}.items():
        assert f"--backend {backend} " in command_of(make_record(runtime=make_runtime(backend=recorded)), FIGURES[0]), recorded


def test_the_command_of_frames_has_their_rate_deadline_and_queue():
    """Without them it would be another case."""
    run = make_record(scenario="steady", load=Load(samples_per_query=1, samples=900, target_per_s=15.0), steady=make_steady(queue_frames=2))
    assert "--scenario steady --rate 15 --deadline 60ms --queue-frames 2 " in command_of(run, FIGURES[0])
    # In figures that the option takes.
    assert "--deadline 1000000ms " in command_of(msgspec.structs.replace(run, steady=make_steady(deadline_ms=1e6)), FIGURES[0])
