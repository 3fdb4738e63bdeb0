"""Test how two cases relate.

The tests cover the fields that must be equal, the marks, and the projections of the identity.
"""

from edgemeter.agent.contract.case_identity import FIELD, FIELDS, key_of
from edgemeter.agent.contract.series import SERIES_FIELDS, SeriesKey, series_of
from edgemeter.collector.influx import points
from edgemeter.collector.runs.relation import MARKED, precision_class, relation
from tests.fixtures.identity_changes import keys_of
from tests.fixtures.record_factory import make_environment, make_generation, make_record
from tests.fixtures.rows import table_row


def test_a_difference_in_any_field_makes_another_hash():
    """The hash leaves out only device and fleet.

    Another hash would begin every line in Grafana anew.
    """
    for name in FIELD:
        with table_row(name):
            hashes = {points.case_hash(key) for key in keys_of(name)}
            assert len(hashes) == (1 if name in ("device", "fleet") else 2)
    assert points.case_hash(key_of(make_record())) == "56ab6f68fa5d"


def test_what_must_be_alike_is_unlike_where_it_differs():
    """The relation names the field; a value unknown for one case is no difference."""
    for field in FIELDS:
        if field.rule != "equal":
            continue
        with table_row(field.name):
            key, other = keys_of(field.name)
            is_known = None not in (getattr(key, field.name), getattr(other, field.name))
            assert [unlike.name for unlike in relation(key, other).unlike] == (
                [field.name] if is_known else []
            )


def test_a_quantisation_matters_only_where_it_bears_on_the_work():
    """It matters only for a language model."""
    language = {"generation": make_generation()}
    key, other = (
        key_of(make_record(**language, precision=precision)) for precision in ("q4_0", "q8_0")
    )
    assert [field.name for field in relation(key, other).unlike] == ["precision"]
    assert relation(*keys_of("precision")).unlike == ()


def test_what_may_differ_is_marked_with_both_values():
    """The exception is a power mode that only one of two boards has."""
    for field in MARKED:
        with table_row(field.mark):
            key, other = keys_of(field.name)
            if field.name == "power_mode":
                assert relation(key, other).marked == ()
                key = key_of(make_record(environment=make_environment(power_mode="MAXN")))
            assert field.mark in [difference.mark for difference in relation(key, other).marked]
    (marked,) = relation(*keys_of("threads")).marked
    assert marked.words == "other threads: 2 threads against 4 threads"


def test_what_runtimes_call_a_precision_is_in_its_class():
    """Weights in 8 bits alone are compared with 8 bits throughout.

    A file's precision gives the name.
    """
    assert precision_class("int8-dynamic") == precision_class("int8") == "8-bit integer"


def test_other_keys_are_projections_of_the_identity():
    """This test fails for a new field that the table of projections lacks."""
    assert set(SeriesKey.__struct_fields__) == {*SERIES_FIELDS, "board"}
    key = key_of(make_record())
    assert series_of(make_record()).settings == key.settings
    within_series = {*FIELD} - {*SERIES_FIELDS} - {"power_mode"}
    of_tags = {field.name for field in FIELDS if {*field.paths} & {*points.TAGS.values()}}
    # The name of the data holds the lengths of language models; a name of a model has one task.
    of_names = {"dataset_sha256", "prompt_tokens", "output_tokens", "task"}
    assert {*points.VARIANT} | of_tags | of_names == {*FIELD} - within_series
