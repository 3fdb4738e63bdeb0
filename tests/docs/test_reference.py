"""Facts about docs/reference: each page is the code's.

`python -m tools.reference` writes them again.
"""

from typing import get_args

from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.contract import model_card, record
from edgemeter.agent.contract.message_schema import MESSAGES
from edgemeter.agent.contract.messages import TopicKind
from edgemeter.agent.settings.files import FILES
from tools.reference.configuration import PARTS, PURPOSES, RESIZES
from tools.reference.pages import ATTACHMENTS, FOLDER, PAGES, content


def test_a_page_is_made_from_the_code():
    """A page equals the text made from the code, so a change that was not written down shows."""
    for name in (*PAGES, *ATTACHMENTS):
        assert (FOLDER / name).read_bytes().decode() == content(name), (
            f"{name}: write it again: python -m tools.reference"
        )


def test_there_is_no_other_page():
    """No other page exists, because a page that nothing makes would become outdated."""
    assert {
        path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()
    } == {*PAGES, *ATTACHMENTS}


def test_every_kind_of_topic_and_of_file_is_described():
    """Every kind of topic and of file is described, so that a new one is not forgotten."""
    assert set(MESSAGES) == set(get_args(TopicKind))
    assert set(PURPOSES) == set(FILES)


def test_every_field_of_a_record_has_its_meaning():
    """Every field of a record has a text, which a formatter that moves it may lose."""
    parts = record.json_schema()["$defs"]
    assert [
        f"{name}.{field}"
        for name, part in parts.items()
        for field, kind in part["properties"].items()
        if not kind["description"]
    ] == []


def test_every_key_of_a_model_card_has_its_meaning():
    """Every key of a model card has a comment, or its cell would be empty.

    Tensors have no key of their own.
    """
    for part, _ in PARTS.values():
        texts = field_texts(model_card)[part.__name__]
        assert {name: texts[name] for name in part.__struct_fields__ if not texts[name]} == {}
    assert {*get_args(model_card.CardInput)} - {model_card.TensorInput} <= {
        part for part, _ in PARTS.values()
    }
    assert {*RESIZES} == {*get_args(model_card.Resize)}
