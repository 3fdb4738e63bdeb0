"""Rules and channels of alerts: a TOML file. `sample_alerts.toml` beside this file shows every key."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.trend.metrics import DEFAULT, METRICS
from edgemeter.collector.trend.watch import Selection

Kind = Literal["step", "drift", "scatter", "limit", "missing", "invalid", "sick-unit", "device-lost", "outbox-stopped"]
Severity = Literal["critical", "warning", "info"]
Event = Literal["opened", "updated", "closed"]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=64)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an alert is opened. Which fields a kind reads stands in the sample; what is absent may be anything."""

    name: _Name
    kind: Kind
    severity: Severity = "warning"
    channels: tuple[_Name, ...] = ()
    metrics: tuple[str, ...] = DEFAULT
    direction: Literal["worse", "both"] = "worse"
    at_least: _Positive | None = None
    above: float | None = None
    below: float | None = None
    runs: Annotated[int, msgspec.Meta(ge=1)] = 2
    hours: _Positive = 24.0
    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    precision: str | None = None
    runtime: str | None = None

    def selection(self) -> Selection:
        """Return the series that the rule is about."""
        return Selection(
            fleet=self.fleet, device=self.device, board=self.board, model=self.model, precision=self.precision, runtime=self.runtime
        )


class Channel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where alerts are sent; a secret stands in a file, or in the environment variable that is named."""

    name: _Name
    kind: Literal["webhook", "alertmanager", "ntfy", "email", "apprise"]
    send: tuple[Event, ...] = ("opened", "closed")
    url: str | None = None
    url_file: str | None = None
    url_env: str | None = None
    format: Literal["json", "slack"] = "json"
    topic: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    host: str | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: str | None = None
    recipients: tuple[str, ...] = ()
    user: str | None = None
    password_file: str | None = None
    password_env: str | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds. `link` is where the page of the fleet is, for links in messages."""

    rule: tuple[Rule, ...] = ()
    channel: tuple[Channel, ...] = ()
    link: str | None = None
    more_runs: bool = True


# What each kind of channel cannot do without.
_NEEDS = {
    "webhook": (("url", "url_file", "url_env"),),
    "alertmanager": (("url", "url_file", "url_env"),),
    "ntfy": (("url", "url_file", "url_env"), ("topic",)),
    "email": (("host",), ("sender",), ("recipients",)),
    "apprise": (("url", "url_file", "url_env"),),
}

# What is watched for where nobody wrote rules.
USUAL = Rules(
    rule=(
        Rule(name="confirmed step", kind="step", severity="critical"),
        Rule(name="drift", kind="drift"),
        Rule(name="verdict gone invalid", kind="invalid"),
        Rule(name="sick board", kind="sick-unit", metrics=("energy", "latency", "accuracy")),
        Rule(name="device lost", kind="device-lost", hours=1.0),
        Rule(name="outbox stopped", kind="outbox-stopped"),
    )
)


def read(path: Path) -> Rules:
    """Return the rules in `path`.

    Raises:
        ConfigError: it cannot be read, has a wrong or unknown key, or a rule names a channel or metric that is not there.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Rules)
    except OSError as error:
        message = f"cannot read the rules {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"rules {str(path)!r}: {error}: correct the key or value"
        raise ConfigError(message) from error
    faults = [*(_fault_of_rule(one, found) for one in found.rule), *map(_fault_of_channel, found.channel), _doubled(found)]
    fault = next(filter(None, faults), None)
    if fault:
        message = f"rules {str(path)!r}: {fault}"
        raise ConfigError(message)
    return found


def _doubled(rules: Rules) -> str | None:
    for names in ([rule.name for rule in rules.rule], [channel.name for channel in rules.channel]):
        for name in names:
            if names.count(name) > 1:
                return f"the name {name!r} is there twice: give each its own"
    return None


def _fault_of_channel(one: Channel) -> str | None:
    lacking = next((names for names in _NEEDS[one.kind] if not any(getattr(one, name) for name in names)), None)
    return f"channel {one.name!r} ({one.kind}) needs {' or '.join(lacking)}" if lacking else None


def _fault_of_rule(one: Rule, rules: Rules) -> str | None:
    known = {channel.name for channel in rules.channel}
    unknown = next((name for name in one.channels if name not in known), None)
    if unknown:
        return f"rule {one.name!r} names the channel {unknown!r}, which is not there: add a [[channel]] of that name"
    metric = next((name for name in one.metrics if name not in METRICS), None)
    if metric:
        return f"rule {one.name!r} names the metric {metric!r}: give some of {', '.join(METRICS)}"
    if one.kind == "limit" and (one.above is None) == (one.below is None):
        return f"rule {one.name!r} (limit) needs either above or below"
    if one.kind == "limit" and len(one.metrics) != 1:
        return f"rule {one.name!r} (limit) needs exactly one metric, as a limit has its unit"
    return None
