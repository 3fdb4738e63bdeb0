"""The identity of a case: each field keeps cases apart, and the table says what a difference means."""

import msgspec

from edgemeter.agent.contract import record
from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey, case_hash, key_of, names_in, precision_class
from edgemeter.agent.contract.case_relation import PAIR_MARKS, likeness, relation
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record_figures import Load, Neighbour, Together
from edgemeter.agent.contract.record_generation import LanguageModel, Quantisation
from edgemeter.collector.compare.matrix import RowKey, row_of
from edgemeter.collector.influx import point_schema
from edgemeter.collector.runs.cases import SeriesKey, series_of
from tests.fixtures.point_lines import read_whole
from tests.fixtures.record_factory import make_environment, make_generation, make_model, make_record, make_runtime, make_steady
from tests.fixtures.rows import table_row


def serving(name):
    """Return generated text of a server that states this model."""
    model = LanguageModel(name=name, parameters=494, quantisation=Quantisation(file_type="Q4_0"))
    return {"generation": make_generation(is_local=False, model=model)}


# By field, what makes another case of a record, and what it differs from where that is not the usual record.
CHANGES = {
    "threads": {"runtime": make_runtime(threads=4)},
    "backend": {"runtime": make_runtime(backend="cuda")},
    "batch": {"batch": 8, "load": Load(samples_per_query=1, samples=80), "inputs": ()},
    "power_mode": {"environment": make_environment(power_mode="15W")},
    "operating_point": {"operating_point": OperatingPoint(governor="powersave")},
    "settings": {"runtime": make_runtime(options={"graph_optimisation": "none"})},
    "provenance": {"provenance": {"latency": "replayed"}},
    "model": {"model": make_model(name="other")},
    "served_model": serving("qwen"),
    "task": {"model": make_model(task="classification")},
    "scenario": {"scenario": "offline"},
    "samples_per_query": {"load": Load(samples_per_query=8, samples=80)},
    "target_per_s": {"load": Load(samples_per_query=1, samples=80, target_per_s=2.0)},
    "deadline": {"steady": make_steady(deadline_ms=40.0)},
    "together": {
        "together": Together(neighbours=(Neighbour(model="ssd", sha256="c3" * 32, runtime="onnx", threads=1),), overlap_ms=1000.0)
    },
    "concurrency": {"load": Load(samples_per_query=1, samples=80, concurrency=4)},
    "prompt_tokens": {"generation": make_generation(prompt_tokens=64)},
    "output_tokens": {"generation": make_generation(output_tokens=64)},
    "dataset_sha256": {"dataset": msgspec.structs.replace(make_record().dataset, sha256="0b" * 32)},
    "precision": {"precision": "int8"},
    "input_values": {"inputs": ()},
    "device": {"device": "pi-2"},
    "role": {"role": "reference"},
    "fleet": {"fleet": "field"},
    "runtime": {"runtime": make_runtime(name="litert")},
    "runtime_package": {"runtime": make_runtime(package="onnxruntime-gpu")},
    "runtime_version": {"runtime": make_runtime(version="1.23.0")},
    "model_sha256": {"model": make_model(sha256="b2" * 32)},
}
USUAL = {
    "batch": {"load": Load(samples_per_query=1, samples=80), "inputs": ()},
    "served_model": serving("llama"),
    "prompt_tokens": {"generation": make_generation()},
    "output_tokens": {"generation": make_generation()},
    "deadline": {"steady": make_steady()},
}


def keys_of(field):
    """Return the keys of two records that differ in one field."""
    return key_of(make_record(**USUAL.get(field, {}))), key_of(make_record(**CHANGES[field]))


def test_the_key_has_the_fields_of_the_table_and_each_bears_on_a_comparison_or_a_mark():
    """In its order, because the key is read by position."""
    assert CaseKey.__struct_fields__ == tuple(FIELD) == tuple(CHANGES)
    for field in FIELDS:
        with table_row(field.name):
            assert field.likeness or field.marks or "change" in field.may_change_in


def test_a_difference_in_any_field_makes_another_case_and_another_hash():
    """No other field is read of what changed. The hash leaves out device and fleet; another one would begin every line in Grafana anew."""
    for name in FIELD:
        with table_row(name):
            key, other = keys_of(name)
            assert [field for field in FIELD if getattr(key, field) != getattr(other, field)] == [name]
            assert FIELD[name].text(key) != FIELD[name].text(other)
            assert relation(key, other).kind != "same"
            assert relation(key, msgspec.structs.replace(key)).kind == "same"
    for name in FIELD:
        with table_row(name):
            hashes = {case_hash(key) for key in keys_of(name)}
            assert len(hashes) == (1 if name in ("device", "fleet") else 2)
    assert case_hash(key_of(make_record())) == "d80b7041a05e"


def test_what_must_be_alike_is_unlike_where_it_differs():
    """The relation names the field; what is not known of one case is no difference."""
    for field in FIELDS:
        if field.likeness is None or field.name in ("samples_per_query", "precision"):
            continue
        with table_row(field.name):
            key, other = keys_of(field.name)
            is_known = None not in (getattr(key, field.name), getattr(other, field.name))
            assert [unlike.name for unlike in relation(key, other).unlike] == ([field.name] if is_known else [])


def test_a_quantisation_or_a_size_of_queries_matters_only_where_it_bears_on_the_work():
    """That of a language model, and that of multi_stream."""
    language = {"generation": make_generation()}
    key, other = (key_of(make_record(**language, precision=precision)) for precision in ("q4_0", "q8_0"))
    assert [field.name for field in relation(key, other).unlike] == ["precision"]
    assert relation(*keys_of("precision")).kind == "like"
    key, other = (key_of(make_record(scenario="multi_stream", load=Load(samples_per_query=samples, samples=80))) for samples in (1, 8))
    assert [field.name for field in relation(key, other).unlike] == ["samples_per_query"]
    assert relation(*keys_of("samples_per_query")).kind == "like"


def test_what_may_differ_is_marked_with_both_values():
    """But for a power mode that only one of two boards has."""
    for field, mark in PAIR_MARKS:
        with table_row(mark.name):
            key, other = keys_of(field.name)
            if field.name == "power_mode":
                assert relation(key, other).marks == ()
                key = key_of(make_record(environment=make_environment(power_mode="MAXN")))
            assert mark.name in relation(key, other).marks
    (marked,) = relation(*keys_of("threads")).marked
    assert marked.words == "other threads: 2 threads against 4 threads"


def test_facts_of_a_run_are_no_settings():
    """What the runtime reports changes from run to run; what is usual, or was not recorded, is not set."""
    for changes, settings in (
        ({"runtime": make_runtime(options={}, facts={"clock": "max"})}, ""),
        ({"runtime": make_runtime(options={"b": "2", "a": "1"})}, "a 1, b 2"),
        ({"generation": make_generation(model=LanguageModel(kv_type="f16"))}, ""),
        (
            {"runtime": make_runtime(options={"kv_type": "q8_0"}), "generation": make_generation(model=LanguageModel(kv_type="q8_0"))},
            "kv_type q8_0",
        ),
        ({"generation": make_generation(speculative="draft")}, "speculative draft"),
        (
            {"runtime": make_runtime(options={"weights": "/a/b.gguf"}, facts={"weights_sha256": "0123456789" * 6 + "abcd"})},
            "weights b.gguf 01234567",
        ),
        ({"cpus": (0, 3)}, "cpus 0 3"),
    ):
        with table_row(settings):
            assert key_of(make_record(**({"runtime": make_runtime(options={})} | changes))).settings == settings


def test_the_count_of_a_server_is_no_length_that_was_set():
    """Of texts it differs from run to run: they would be a case each."""
    key, other = (key_of(make_record(generation=make_generation(counts="usage", prompt_tokens=tokens))) for tokens in (511, 515))
    assert key == other


def test_what_runtimes_call_a_precision_is_in_its_class():
    """Weights in 8 bits alone are compared with 8 bits throughout, by the name that a file's precision has."""
    assert precision_class("int8-dynamic") == precision_class("int8") == "8-bit integer"


def test_other_keys_are_projections_of_the_identity():
    """A field that is new in the table is missed here."""
    assert set(SeriesKey.__struct_fields__) == {*names_in("series"), "board"}
    assert {*RowKey._fields} - {"precision_class"} == {field.name for field in FIELDS if field.likeness} - {"precision"}
    key = key_of(make_record())
    assert row_of(key).model == key.model
    assert series_of(make_record()).settings == key.settings
    assert len(likeness(key)) == len(RowKey._fields)
    within_series = {field.name for field in FIELDS if "series" in field.may_change_in} - {"power_mode"}
    of_tags = {field.name for field in FIELDS if {*field.paths} & {*point_schema.TAGS.values()}}
    # The name of the data holds the lengths of language models; a name of a model has one task.
    of_names = {"dataset_sha256", "prompt_tokens", "output_tokens", "task"}
    assert {*point_schema.VARIANT} | of_tags | of_names == {*FIELD} - within_series


def test_the_figures_of_a_record_hold_its_identity():
    """A point of figures alone gets the same tags: the table names all that is read."""
    for name in FIELD:
        with table_row(name):
            run = make_record(**CHANGES[name])
            slim = read_whole(record.encode(run), "figures")
            assert key_of(slim) == key_of(run)


def test_a_record_from_before_settings_keeps_its_identity():
    """Without options, cores and generated text nothing is set, and no server is known."""
    document = msgspec.json.decode(record.encode(make_record(runtime=make_runtime(options={}))))
    for part, names in ((document, ("cpus", "generation", "load")), (document["runtime"], ("options", "facts"))):
        for name in names:
            del part[name]
    key = key_of(record.decode(msgspec.json.encode(document)))
    assert (key.settings, key.served_model, key.output_tokens) == ("", None, None)
    slim = read_whole(msgspec.json.encode(document), "figures")
    assert key_of(slim) == key
