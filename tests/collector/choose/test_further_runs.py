"""Facts about `edgemeter.collector.choose.further_runs`."""

import pytest

from edgemeter.agent.contract.figures import FIGURES
from edgemeter.collector.choose.further_runs import command_of
from tests.fixtures.record_factory import make_record, make_runtime


@pytest.mark.parametrize(
    ("recorded", "backend"),
    [("gpu,auto", "gpu"), ("gpu,cpu,auto", "gpu,cpu"), ("openvino-ep:npu,auto", "openvino-ep:npu"), ("cpu,fp16", "cpu"), ("cuda", "cuda")],
)
def test_the_command_has_the_backend_that_was_asked_for(recorded, backend):
    """A record names with it what was computed in, which no runtime takes as a backend."""
    assert f"--backend {backend} " in command_of(make_record(runtime=make_runtime(backend=recorded)), FIGURES[0])
