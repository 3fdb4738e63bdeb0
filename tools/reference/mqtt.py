import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.message_schema import MESSAGES
from edgemeter.agent.contract.messages import TOPIC_ROOT, TopicKind
from edgemeter.provisioning.identity import broker_files
from tools.reference.tables import anchor, table

HEAD = f"""# MQTT

Topics are `{TOPIC_ROOT}/FLEET/DEVICE/KIND`. Messages are JSON at QoS 1; `activity` and `progress`
are at QoS 0. Clients use MQTT 5, or 3.1.1 if the broker has no 5. Below, `fleet` and `operator` are
users of the fleet's service, `operator` also of the command `edgemeter fleet`. The access rules for
mosquitto that `edgemeter collector deploy-files` and `edgemeter fleet init` write let a device use
its own topics only.

"""
MESSAGES_HEAD = """
## Messages

Your programs may read these messages ([users](../tasks/fleet-security.md#the-broker)). Those
without a link above are internal. Ignore fields that you do not know. Fields without a type are
text. `edgemeter config schema messages` prints the JSON Schema of all messages.
"""
# The kinds that programs of others may want to read.
FOR_READERS: tuple[TopicKind, ...] = ("birth", "state", "receipt", "activity", "progress", "health")
RETAINED: Mapping[TopicKind, str] = {
    **dict.fromkeys(("birth", "state", "activity", "health"), "yes"),
    "receipt": f"`{messages.AgainRequest.__name__}`",
}
NAMES = {int: "integer", float: "number", bool: "boolean", bytes: "bytes"}


def page() -> str:
    """Return the page: the topics, then each message that others read, with its fields.

    The others are programs other than devices and fleet.
    """
    rows = [
        (f"`{kind}`", _direction(kind), RETAINED.get(kind, "no"), _links(kind))
        for kind in get_args(TopicKind)
    ]
    text = HEAD + table(["kind", "direction", "retained", "message"], rows)
    text += (
        f"\nThe fleet also publishes `{messages.JOB_STATE.format(job='NAME')}`, retained, with "
        f"{_named(messages.JobProgress)}.\n"
    )
    return text + MESSAGES_HEAD + "".join(map(_section, structs_of(FOR_READERS)))


def _section(struct: type[msgspec.Struct]) -> str:
    return (
        f"\n### {struct.__name__}\n\n{inspect.cleandoc(struct.__doc__ or '')}\n\n"
        f"{_fields(struct)}\n"
    )


@cache
def structs_of(kinds: tuple[TopicKind, ...]) -> list[type[msgspec.Struct]]:
    """Return the messages of these kinds of topic, each followed by the new structs in it.

    Parts of Health are left out.
    """
    structs: dict[type[msgspec.Struct], None] = {}

    def add(struct: type[msgspec.Struct]) -> None:
        if struct not in structs:
            structs[struct] = None
            for annotation in () if struct is Health else get_type_hints(struct).values():
                for inner in _inside(annotation):
                    add(inner)

    for struct in (
        *(message for kind in kinds for message in MESSAGES[kind]),
        messages.JobProgress,
    ):
        add(struct)
    return list(structs)


def _inside(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [struct for argument in get_args(annotation) for struct in _inside(argument)]


def _direction(kind: TopicKind) -> str:
    rules = broker_files.access_rules(["+"]).splitlines()
    readers, writers = (
        _services(rules, f"topic {access} {TOPIC_ROOT}/+/+/{kind}") for access in ("read", "write")
    )
    is_written, is_read = (
        f"pattern {access} {TOPIC_ROOT}/+/%u/{kind}" in rules for access in ("write", "read")
    )
    ways = [f"device to {', '.join(readers)}"] if is_written else []
    ways += [f"{', '.join(writers)} to device"] if is_read and writers else []
    return "; ".join(ways)


def _services(rules: list[str], rule_text: str) -> list[str]:
    """Return the services that have a rule, without their prefix."""
    user, names = "", []
    for rule in rules:
        user = rule.removeprefix("user edgemeter-") if rule.startswith("user ") else user
        names += [user] if rule == rule_text else []
    return names


def _links(kind: TopicKind) -> str:
    return ", ".join(map(_named, MESSAGES[kind])) or "[run record](record.md), or a list of them"


def _named(struct: type) -> str:
    return (
        f"[{struct.__name__}](#{anchor(struct.__name__)})"
        if struct in structs_of(FOR_READERS)
        else f"`{struct.__name__}`"
    )


def _fields(struct: type[msgspec.Struct]) -> str:
    hints = get_type_hints(struct)
    texts = {True: list[str](), False: list[str]()}
    for field in msgspec.structs.fields(struct):
        texts[field.required].append(f"`{field.encode_name}` {_type(hints[field.name])}".rstrip())
    optional = f"Optional: {'; '.join(texts[False])}" if texts[False] else ""
    return "\n\n".join(filter(None, ("; ".join(texts[True]), optional)))


def _type(annotation: Any) -> str:
    """Return the type in words, empty for text; that a field may be null goes unsaid."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _named(annotation)
    arguments = [
        argument
        for argument in get_args(annotation)
        if argument not in (type(None), msgspec.UnsetType, Ellipsis)
    ]
    origin = getattr(annotation, "__origin__", None)
    if origin is dict:
        return f"map to {_type(arguments[1]) or 'text'}"
    if origin in (tuple, list):
        kinds = [_type(argument) or "text" for argument in arguments]
        return f"list of {kinds[0]}" if len(kinds) == 1 else f"[{', '.join(kinds)}]"
    if arguments and not isinstance(arguments[0], str):
        return " or ".join(map(_type, arguments))
    return ", ".join(f"`{argument}`" for argument in arguments) or NAMES.get(annotation, "")
