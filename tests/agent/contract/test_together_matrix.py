"""Facts about `edgemeter.agent.contract.together_matrix`, on made-up records."""

import msgspec
import pytest

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.agent.contract.together_matrix import rows_of
from edgemeter.agent.session import turn_figures
from edgemeter.collector.compare.summary import energy_of
from edgemeter.collector.runs.cases import not_measured
from tests.fixtures.record_factory import SHA_MODEL, make_latency, make_model, make_record


def neighbour_called(name: str) -> Neighbour:
    """Return the model of that name as a neighbour."""
    runtime = make_record().runtime
    return Neighbour(model=name, sha256=SHA_MODEL, runtime=runtime.name, threads=runtime.threads)


def runs_of(name: str, *means_ms: float, company: tuple[str, ...] = (), **changes):
    """Return a run a round with these mean latencies."""
    together = Together(neighbours=tuple(map(neighbour_called, company)), overlap_ms=1e4) if company else None
    latencies = [msgspec.structs.replace(make_latency(), mean_ms=mean_ms) for mean_ms in means_ms]
    return [
        make_record(model=make_model(name=name), latency=latency, repeat=repeat, together=together, **changes)
        for repeat, latency in enumerate(latencies)
    ]


def test_the_slow_down_is_that_of_the_pairs_of_a_round():
    """A drift that meets both runs of a round is in no ratio; an invalid run is none."""
    runs = [
        *runs_of("a", 10.0, 20.0, 40.0),
        *runs_of("a", 20.0, 40.0, 80.0, company=("b",)),
        *runs_of("b", 5.0),
        *runs_of("b", 5.0, company=("a",)),
        *runs_of("a", 99.0, company=("b",), verdict=Verdict(state="invalid", reasons=("x: y",))),
    ]
    first, second = rows_of(runs)
    assert (first.model.model, first.alone_ms, first.mean_ms) == ("a", 20.0, 40.0)
    assert (first.slow_down_ratio, first.slow_down_low_ratio, first.slow_down_high_ratio) == pytest.approx((2.0, 2.0, 2.0))
    assert (second.slow_down_ratio, second.slow_down_low_ratio) == (1.0, None)
    assert rows_of(runs_of("a", 1.0, 2.0)) == []


def test_energy_of_several_models_is_shared_and_not_ranked():
    """It stays in the record, is no figure of a comparison or a choice."""
    (run,) = runs_of("a", 10.0, company=("b", "c"))
    assert energy_provenance(run) == "shared"
    assert turn_figures.gross_mj(run) is None
    assert not_measured(run, "energy") == "energy: shared with b and c, which ran at the same time: it is no cost of one model"
    summary, reason, _ = energy_of([run])
    assert summary is None
    assert "shared with b and c" in reason
