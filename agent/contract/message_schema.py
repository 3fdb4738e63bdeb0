"""The messages of each kind of topic, and their JSON Schema."""

from typing import Any

import msgspec

from edgemeter.agent.contract import health, messages, orders, sealed
from edgemeter.agent.contract.messages import TopicKind

# The messages on each kind of topic; the message of `result` is the record.
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
}


def json_schema() -> dict[str, Any]:
    messages_of_all = [
        *dict.fromkeys(struct for structs in MESSAGES.values() for struct in structs),
        messages.JobProgress,
    ]
    schemas, components = msgspec.json.schema_components(
        messages_of_all, ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Edgemeter messages",
        "messages": [schema["$ref"].rsplit("/", 1)[1] for schema in schemas],
        "$defs": components,
    }
