"""Facts about `edgemeter.agent.contract.energy_provenance`, on a made-up record."""

from edgemeter.agent.contract.energy_provenance import energy_provenance, not_measured
from edgemeter.agent.contract.record_figures import Neighbour, Together
from tests.fixtures.comparison_factory import summarised
from tests.fixtures.record_factory import SHA_MODEL, make_record


def test_energy_of_several_models_is_shared_and_not_ranked():
    """Shared energy stays in the record but is used in no comparison and no choice."""
    neighbours = tuple(
        Neighbour(model=name, sha256=SHA_MODEL, runtime="onnx", threads=1) for name in ("b", "c")
    )
    run = make_record(together=Together(neighbours=neighbours))
    assert energy_provenance(run) == "shared"
    assert not_measured(run, "energy") == "energy: shared with b and c, which ran at the same time"
    (case,) = summarised([run])
    assert case.energy is None
    assert "shared with b and c" in case.energy_reason
