"""The messages of each kind of topic, and their JSON Schema."""

from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from edgemeter.agent.contract import health, identity, messages, orders, sealed
from edgemeter.agent.contract.messages import TopicKind

# What travels on each kind of topic; the result's message is the record.
MESSAGES: dict[TopicKind, tuple[type[msgspec.Struct], ...]] = {
    "birth": (messages.Birth,),
    "state": (messages.DeviceState,),
    "result": (),
    "receipt": (messages.Receipt, messages.AgainRequest),
    "command": (sealed.SealedMessage, sealed.AddressedCommand, orders.Order, orders.ReportReceipt),
    "activity": (messages.Activity,),
    "progress": (messages.Progress,),
    "job": (orders.ExecutionReport,),
    "health": (health.Health,),
    "want": (orders.Want,),
    "content": (orders.Chunk,),
    "renew": (identity.CertificateRequest, identity.CertificateHeld),
    "certificate": (sealed.SealedMessage, identity.EnrolmentAnswer),
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of every message."""
    schemas, components = msgspec.json.schema_components(structs_of(tuple(MESSAGES)), ref_template="#/$defs/{name}")
    names = [schema["$ref"].rsplit("/", 1)[1] for schema in schemas]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Edgemeter messages", "messages": names}
    return {**head, "$defs": components}


@cache
def structs_of(kinds: tuple[TopicKind, ...]) -> list[type[msgspec.Struct]]:
    """Return the messages of these kinds of topic, each followed by the structs in it that were not shown before."""
    structs: dict[type[msgspec.Struct], None] = {}

    def add(struct: type[msgspec.Struct]) -> None:
        if struct in structs:
            return
        structs[struct] = None
        for annotation in get_type_hints(struct).values():
            for inner in _inside(annotation):
                add(inner)

    for kind in kinds:
        for message in MESSAGES[kind]:
            add(message)
    add(messages.CampaignProgress)
    return list(structs)


def _inside(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [struct for argument in get_args(annotation) for struct in _inside(argument)]
