"""Facts about the identity of a case.

Each field keeps cases apart, and the table says what a difference means.
"""

import msgspec

from edgemeter.agent.contract import record
from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey, key_of
from edgemeter.agent.contract.record_generation import LanguageModel
from tests.fixtures.identity_changes import CHANGES, keys_of
from tests.fixtures.record_factory import make_generation, make_record, make_runtime
from tests.fixtures.rows import table_row


def test_the_key_has_the_fields_of_the_table_and_each_bears_on_a_comparison_or_a_mark():
    """The order of the fields matters because the key is read by position."""
    assert CaseKey.__struct_fields__ == tuple(FIELD) == tuple(CHANGES)
    for field in FIELDS:
        with table_row(field.name):
            assert bool(field.why) is (field.rule == "equal")


def test_a_difference_in_any_field_makes_another_case():
    """A change in one field of a record changes that field of the key and no other."""
    for name in FIELD:
        with table_row(name):
            key, other = keys_of(name)
            assert [field for field in FIELD if getattr(key, field) != getattr(other, field)] == [
                name
            ]
            assert FIELD[name].text(key) != FIELD[name].text(other)


def test_facts_of_a_run_are_no_settings():
    """Facts that the runtime reports change from run to run.

    A usual value, or one that was not recorded, is not a setting either.
    """
    for changes, settings in (
        ({"runtime": make_runtime(options={}, facts={"clock": "max"})}, ""),
        ({"runtime": make_runtime(options={"b": "2", "a": "1"})}, "a 1, b 2"),
        ({"generation": make_generation(model=LanguageModel(kv_type="f16"))}, ""),
        (
            {
                "runtime": make_runtime(options={"kv_type": "q8_0"}),
                "generation": make_generation(model=LanguageModel(kv_type="q8_0")),
            },
            "kv_type q8_0",
        ),
        ({"generation": make_generation(speculative="draft")}, "speculative draft"),
        (
            {
                "runtime": make_runtime(
                    options={"weights": "/a/b.gguf"},
                    facts={"weights_sha256": "0123456789" * 6 + "abcd"},
                )
            },
            "weights b.gguf 01234567",
        ),
        ({"cpus": (0, 3)}, "cpus 0 3"),
    ):
        with table_row(settings):
            assert (
                key_of(make_record(**({"runtime": make_runtime(options={})} | changes))).settings
                == settings
            )


def test_the_count_of_a_server_is_no_length_that_was_set():
    """The count differs from run to run, and each run would be a case of its own."""
    key, other = (
        key_of(make_record(generation=make_generation(counts="usage", prompt_tokens=tokens)))
        for tokens in (511, 515)
    )
    assert key == other


def test_a_record_from_before_settings_keeps_its_identity():
    """Without options, cores and generated text nothing is set, and no server is known."""
    document = msgspec.json.decode(record.encode(make_record(runtime=make_runtime(options={}))))
    for part, names in (
        (document, ("cpus", "generation", "load")),
        (document["runtime"], ("options", "facts")),
    ):
        for name in names:
            del part[name]
    key = key_of(record.decode(msgspec.json.encode(document)))
    assert (key.settings, key.served_model, key.output_tokens) == ("", None, None)
