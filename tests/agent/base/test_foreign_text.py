"""Facts about text that others wrote and that nests too deeply for the stack.

It is an error as any malformed text is, whoever reads it.
"""

import itertools

import pytest

from edgemeter.agent.base import config, durable_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import (
    health,
    identity,
    messages,
    model_card,
    order_suite,
    orders,
    sealed,
    suite,
)
from edgemeter.agent.datasets import coco
from edgemeter.agent.engine.prompts import questions
from edgemeter.agent.recognition.metadata import read_self_description
from edgemeter.agent.runtimes import replay
from edgemeter.agent.settings.files import check_file
from edgemeter.collector.alerts.rules import read_rules
from edgemeter.collector.datacenter.constants import read_constants
from edgemeter.collector.published import readers as published_readers
from edgemeter.collector.receive.admission import split_records
from edgemeter.models.catalogue.catalogue import read_catalogue
from edgemeter.provisioning.inventory import fleet_file
from tests.fixtures.rows import table_row

# The first is no deeper than a stack allows, which what is done to the value afterwards is.
DEPTHS = (400, 1_000, 30_000)


def lists(depth):
    return "[" * depth + "]" * depth


TOML = {
    "lists": lambda depth: f"name = {lists(depth)}\n",
    "lists in a part that is free": lambda depth: f"[sensors.ina219]\naddress = {lists(depth)}\n",
    "tables": lambda depth: f"name = {'{a = ' * depth}1{'}' * depth}\n",
    # The parser itself takes the square of the depth for these.
    "names with dots": lambda depth: f"name{'.a' * min(depth, 1_000)} = 1\n",
}
OF_TOML = {
    "configuration": config.read_file,
    "any file": check_file,
    "model card": model_card.read_card,
    "join file": identity.read_join_file,
    "suite": suite.read_file,
    "rules of alerts": read_rules,
    "constants": read_constants,
    "published figures": lambda path: published_readers.read(path, {}),
    "catalogue": read_catalogue,
    "fleet": fleet_file.read,
}
JSON = {
    "lists": lists,
    "objects": lambda depth: '{"a":' * depth + "1" + "}" * depth,
    "a field": lambda depth: (
        f'{{"images": {lists(depth)}, "runs": {lists(depth)}, "data": {lists(depth)}, '
        f'"paragraphs": 1}}'
    ),
    "a field in a list": lambda depth: f'[{{"id": {lists(depth)}}}]',
}
OF_JSON = {
    "struct": lambda path: durable_file.read_struct(path, dict[str, int], "note", "delete it"),
    "annotations": coco.read_annotations,
    "questions": lambda path: questions.read_questions(str(path)),
    "recording": lambda path: replay.read_recording(
        path, replay.ReplayModel, "recording", "replay"
    ),
}
MESSAGES = {
    "from a collector": messages.decode_from_collector,
    "state": messages.decode_state,
    "birth": messages.decode_birth,
    "progress": messages.decode_progress,
    "records": lambda payload: split_records(b"[" + payload + b"]"),
    "signed": lambda payload: sealed.decode_sealed(payload, "an order", 10_000_000),
    "command": orders.decode_command,
    "report": orders.decode_report,
    "request for a certificate": identity.decode_request,
    "answer to it": identity.decode_answer,
    "health": health.decode_health,
    "suite of an order": order_suite.read,
}


def test_a_file_that_nests_too_deeply_is_one_line(tmp_path):
    """The error is one line with the name of the file instead of a traceback.

    The traceback would be that of tomllib, of msgspec, or of what copies and prints the value.
    """
    for suffix, texts, readers in ((".toml", TOML, OF_TOML), (".json", JSON, OF_JSON)):
        path = tmp_path / f"deep{suffix}"
        for depth, (shape, text) in itertools.product(DEPTHS, texts.items()):
            path.write_text(text(depth))
            for name, read in readers.items():
                with table_row(depth, shape, name), pytest.raises(ConfigError) as refused:
                    read(path)
                assert str(path) in str(refused.value)
                assert "\n" not in str(refused.value)
                assert len(str(refused.value)) < 1000, (shape, name)


def test_a_message_that_nests_too_deeply_is_refused():
    """It is refused like any malformed message, which each service logs before it goes on."""
    for depth, (shape, text), (name, decode) in itertools.product(
        DEPTHS, JSON.items(), MESSAGES.items()
    ):
        with table_row(depth, shape, name), pytest.raises(ConfigError):
            decode(text(depth).encode())


def test_metadata_that_nests_too_deeply_describes_nothing():
    """The other metadata of the model is read all the same."""
    description = read_self_description(
        {"names": lists(30_000), "a.json": lists(30_000), "task": "detect"}
    )
    assert (description.labels, description.task) == ((), "detect")
