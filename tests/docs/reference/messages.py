"""MQTT topics with their messages, and the metrics that a collector serves."""

import inspect
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.message_schema import MESSAGES
from edgemeter.agent.contract.messages import TOPIC_ROOT, TopicKind
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.monitor import CollectorMetrics
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.watch_file import WatchFile, watch_file_beside
from edgemeter.provisioning.identity import broker_files
from tests.docs.reference.tables import anchor, table

METRICS_HEAD = """# Metrics

## The collector's /metrics

`edgemeter collector up --metrics [HOST:]PORT` serves them in Prometheus' text format (0.0.4), on the loopback unless a host is given.

"""
HEALTH = """
## The collector's /healthz

200 and `ok` while results can be received, else 503 and the reason in one line: no broker, a stopped writer, a full disk.
It asks nobody, so that it answers at once when PostgreSQL or the disk hangs. For a container's health check or a load balancer.
"""
TRENDS = """
## Metrics of trends, comparisons over time and alerts

What `--figure` and the `metrics` of an alert's rule may name. A difference below the smallest one never counts; it is in per cent, or in
points (hundredths) where the figure is a share.

"""
TOPICS_HEAD = f"""# MQTT topics

All topics are `{TOPIC_ROOT}/FLEET/DEVICE/KIND`; messages are JSON, QoS 1 (`activity` and `progress`: QoS 0).
`edgemeter collector deploy-files` and `edgemeter fleet init` write access rules for mosquitto in which a device may use its own topics
only. Readers of what devices report ignore fields that they do not know; orders with unknown fields are refused. A field
without a type below is text. `edgemeter config schema messages` has all; below are those that your programs may read.

"""
# Those that others than devices and fleet may want to read.
FOR_READERS = ("birth", "state", "receipt", "activity", "progress", "health")
RETAINED = ("birth", "state", "activity", "health")
RESULT = "[run record](record.md), or a list of them; the samples travel inside"


def metrics_page() -> str:
    """Return the page of metrics; those of /metrics are asked of a collector that is not started."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite"
        with SqliteLedger(ledger) as opened:
            opened.commit([], changes=[PresenceChange("lab", "pi-1", messages.DeviceState(state="online", session=1), 1)])
            opened.advance("influx", 0)
        with WatchFile(watch_file_beside(str(ledger))) as file, file.writing() as statements:
            statements.execute("INSERT INTO alert_checks VALUES (1, 1)")
        collector = Collector(parse_address("127.0.0.1:1", environ={}), ledger)
        metrics = [_metric_row(family) for family in CollectorMetrics(collector).collect()]
    trends = [
        (f"`{name}`", metric.figure.title, metric.figure.unit or "1", metric.figure.better or "-", f"{metric.rule.matters:g}")
        for name, metric in METRICS.items()
    ]
    return (
        f"{METRICS_HEAD}\n{table(['metric', 'kind', 'meaning'], metrics)}{HEALTH}{TRENDS}"
        f"{table(['metric', 'title', 'unit', 'better', 'smallest difference'], trends)}"
    )


def _metric_row(family: Any) -> tuple[str, str, str]:
    suffix = "_total" if family.type == "counter" else ""
    labels = "".join(f"{{{label}}}" for label in family.samples[0].labels if label != "le")
    return f"`{family.name}{suffix}{labels}`", family.type, family.documentation


def topics_page() -> str:
    """Return the page of topics, and of every message that others than devices and fleet read, with its fields."""
    rows = [(f"`{kind}`", _direction(kind), "yes" if kind in RETAINED else "no", _links(kind)) for kind in get_args(TopicKind)]
    text = TOPICS_HEAD + table(["kind", "direction", "retained", "message"], rows)
    text += "\n## Other topics\n\n" + table(["topic", "direction", "message"], _others())
    for struct in structs_of(FOR_READERS):
        text += f"\n## {struct.__name__}\n\n{inspect.cleandoc(struct.__doc__ or '')}\n\n{_fields(struct)}".rstrip() + "\n"
    return text


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
    add(messages.JobProgress)
    return list(structs)


def _inside(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [struct for argument in get_args(annotation) for struct in _inside(argument)]


def _others() -> list[tuple[str, str, str]]:
    return [
        (f"`{messages.JOB_STATE.format(job='NAME')}`", "fleet to collector, retained", _named(messages.JobProgress)),
        ("as the alert's channel names it", "collector to anyone", "alerts as text; see the sample of alerts"),
    ]


def _direction(kind: TopicKind) -> str:
    rules = broker_files.access_rules(["+"]).splitlines()
    readers, writers = (_services(rules, f"topic {access} {TOPIC_ROOT}/+/+/{kind}") for access in ("read", "write"))
    is_written, is_read = (f"pattern {access} {TOPIC_ROOT}/+/%u/{kind}" in rules for access in ("write", "read"))
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
    return ", ".join(_named(struct) for struct in MESSAGES[kind]) or RESULT


def _named(struct: type) -> str:
    return f"[{struct.__name__}](#{anchor(struct.__name__)})" if struct in structs_of(FOR_READERS) else f"`{struct.__name__}`"


def _fields(struct: type[msgspec.Struct]) -> str:
    hints = get_type_hints(struct)
    fields = msgspec.structs.fields(struct)
    named = {field.encode_name: f"`{field.encode_name}` {_type(hints[field.name])}".removesuffix(" text") for field in fields}
    required = [named[field.encode_name] for field in fields if field.required]
    optional = [named[field.encode_name] for field in fields if not field.required]
    tag = struct.__struct_config__.tag
    lines = ["; ".join([*([f"`type` `{tag}`"] if tag else []), *required]), "Optional: " + "; ".join(optional) if optional else ""]
    return "\n\n".join(line for line in lines if line) + "\n"


def _type(annotation: Any) -> str:
    names = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null", msgspec.UnsetType: "absent", bytes: "bytes"}
    if annotation in names:
        return names[annotation]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _named(annotation)
    arguments = get_args(annotation)
    origin = getattr(annotation, "__origin__", None)
    if origin is dict:
        return f"map to {_type(arguments[1])}"
    if origin in (tuple, list):
        kinds = [_type(argument) for argument in arguments if argument is not Ellipsis]
        return f"list of {kinds[0]}" if len(kinds) == 1 else f"[{', '.join(kinds)}]"
    if arguments and not isinstance(arguments[0], str):
        return " or ".join(_type(argument) for argument in arguments)
    return ", ".join(f"`{argument}`" for argument in arguments) or "any"
