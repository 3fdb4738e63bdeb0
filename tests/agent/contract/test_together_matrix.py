"""Facts about `edgemeter.agent.contract.together_matrix`, on made-up records."""

import io

import msgspec
import pytest
from rich.console import Console

from edgemeter.agent.cli.further_tables import print_together
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.agent.contract.together_matrix import matrix_of, slow_down
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
    """A drift that meets both runs of a round is in no ratio."""
    runs = [
        *runs_of("a", 10.0, 20.0, 40.0),
        *runs_of("a", 20.0, 40.0, 80.0, company=("b",)),
        *runs_of("b", 5.0),
        *runs_of("b", 5.0, company=("a",)),
    ]
    first, second = matrix_of(runs).rows
    assert (first.model.model, first.alone.mean_ms, first.beside[0].mean_ms) == ("a", 20.0, 40.0)
    cell = first.beside[0]
    assert (cell.slow_down_ratio, cell.slow_down_low_ratio, cell.slow_down_high_ratio) == pytest.approx((2.0, 2.0, 2.0))
    assert (second.beside[0].slow_down_ratio, second.beside[0].slow_down_low_ratio) == (1.0, None)


def test_three_models_have_each_pair_and_all():
    """The companies of a model in the order of their size; an invalid run is none."""
    names = ("a", "b", "c")
    runs = [run for name in names for run in runs_of(name, 10.0)]
    for name in names:
        neighbours = tuple(neighbour for neighbour in names if neighbour != name)
        for company in (neighbours, neighbours[:1], neighbours[1:]):
            runs += runs_of(name, 15.0, company=company)
    invalid = runs_of("a", 99.0, company=("b",), verdict=Verdict(state="invalid", reasons=("x: y",)))
    rows = matrix_of([*runs, *invalid]).rows
    assert [[len(cell.neighbours) for cell in row.beside] for row in rows] == [[1, 1, 2]] * 3
    assert all(cell.slow_down_ratio == pytest.approx(1.5) for row in rows for cell in row.beside)


def test_runs_alone_make_no_matrix():
    """There is nothing to show."""
    assert matrix_of(runs_of("a", 1.0, 2.0)) is None
    assert slow_down([]) == (None, None, None)


def test_energy_of_several_models_is_shared_and_not_ranked():
    """It stays in the record, is no figure of a comparison or a choice."""
    (run,) = runs_of("a", 10.0, company=("b", "c"))
    assert energy_provenance(run) == "shared"
    assert turn_figures.gross_mj(run) is None
    assert not_measured(run, "energy") == "energy: shared with b and c, which ran at the same time: it is no cost of one model"
    summary, reason, _ = energy_of([run])
    assert summary is None
    assert "shared with b and c" in reason


def test_two_files_of_one_name_are_two_rows_with_names_of_their_own():
    """The start of the hash tells them apart."""
    names = {"a": "aa" * 32, "b": "bb" * 32}
    neighbours = {name: msgspec.structs.replace(neighbour_called("twin"), sha256=sha256) for name, sha256 in names.items()}
    runs = []
    for name, company in (("a", "b"), ("b", "a")):
        model = make_model(name="twin", sha256=names[name])
        runs += [make_record(model=model), make_record(model=model, together=Together(neighbours=(neighbours[company],), overlap_ms=1e4))]
    out = io.StringIO()
    print_together(matrix_of(runs), Console(file=out, width=200))
    assert all(text in out.getvalue() for text in (f"twin {neighbours['a'].setting_text} aaaaaa", "bbbbbb"))
