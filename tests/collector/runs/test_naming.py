"""Facts about the names of cases: as short as they can be told apart by."""

from edgemeter.agent.contract.case_identity import key_of
from edgemeter.collector.runs.cases import named, names_of
from tests.fixtures.comparison_factory import make_reference, make_run


def test_a_case_that_no_other_is_called_like_has_the_short_name():
    """Threads, back-end and the rest are shown only where they distinguish cases."""
    full, other = key_of(make_run()), key_of(make_run(precision="int8"))
    assert names_of([full, other, full]) == {full: named(full), other: named(other)}


def test_no_two_cases_have_one_name():
    """Names differ by the fewest parts, whatever the cases differ in."""
    keys = [
        key_of(run)
        for run in (
            make_run(threads=1),
            make_run(threads=4),
            make_run(threads=4, scenario="offline"),
            make_run(threads=4, sha256="b2" * 32),
            make_reference(device="pi-1", threads=1),
        )
    ]
    names = names_of(keys)
    assert len(set(names.values())) == len(keys)
    assert names[keys[2]] == "tiny-detector fp32 on onnx, pi-1, 4 threads, offline"
    assert names[keys[4]] == "tiny-detector fp32 on onnx, pi-1, 1 thread, reference"
