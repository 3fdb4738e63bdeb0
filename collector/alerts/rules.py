"""Rules and channels of alerts: a TOML file. `sample_alerts.toml` beside this file shows every key."""

from datetime import time
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import read_toml
from edgemeter.collector.trend.metrics import DEFAULT, METRICS
from edgemeter.collector.trend.watch import SeriesSelection

SAMPLE = Path(__file__).with_name("sample_alerts.toml")
RuleKind = Literal["step", "drift", "limit", "missing", "invalid", "outlying-board", "device-lost", "outbox-stopped"]
AlertSeverity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[AlertSeverity, ...] = get_args(AlertSeverity)  # The most severe first.
AlertEvent = Literal["opened", "updated", "closed"]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=64)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class AlertRule(SeriesSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an alert is opened. The sample shows which fields each kind reads; an absent selector matches everything."""

    name: _Name
    kind: RuleKind
    severity: AlertSeverity = "warning"
    channels: tuple[_Name, ...] = ()
    metrics: tuple[str, ...] = DEFAULT
    direction: Literal["worse", "both"] = "worse"
    at_least: _Positive | None = None
    above: float | None = None
    below: float | None = None
    runs: Annotated[int, msgspec.Meta(ge=1)] = 2
    hours: _Positive = 24.0
    repeat_hours: _Positive | None = None


_Quiet = Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")]


class Channel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where alerts are sent; secrets are read from the named file or environment variable. In `quiet` times notices wait."""

    name: _Name
    kind: Literal["webhook", "alertmanager", "ntfy", "email", "mqtt", "apprise"]
    send: tuple[AlertEvent, ...] = ("opened", "closed")
    quiet: _Quiet | None = None
    quiet_severities: tuple[AlertSeverity, ...] = ("warning", "info")
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

    def keeps_quiet(self, severity: str, at: time) -> bool:
        """Return whether an alert of a severity waits `at` a time of the day."""
        if self.quiet is None or severity not in self.quiet_severities:
            return False
        begin, end = map(time.fromisoformat, self.quiet.split("-"))
        return begin <= at < end if begin <= end else not end <= at < begin


class AlertRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file. `link` is the address of the fleet's page, for links in messages."""

    rule: tuple[AlertRule, ...] = ()
    channel: tuple[Channel, ...] = ()
    link: str | None = None


# The required keys of each kind of channel.
_ADDRESS = ("url", "url_file", "url_env")
_NEEDS = {
    **dict.fromkeys(("webhook", "alertmanager", "apprise"), (_ADDRESS,)),
    **dict.fromkeys(("ntfy", "mqtt"), (_ADDRESS, ("topic",))),
    "email": (("host",), ("sender",), ("recipients",)),
}

# The built-in rules, for use without a rules file.
USUAL = AlertRules(
    rule=(
        AlertRule(name="confirmed step", kind="step", severity="critical"),
        AlertRule(name="drift", kind="drift"),
        AlertRule(name="verdict gone invalid", kind="invalid"),
        AlertRule(name="outlying board", kind="outlying-board", metrics=("energy_gross_mj", "latency_p50_ms", "accuracy_value")),
        AlertRule(name="device lost", kind="device-lost", hours=1.0),
        AlertRule(name="outbox stopped", kind="outbox-stopped"),
    )
)


def read_rules(path: Path) -> AlertRules:
    """Return the rules in `path`.

    Raises:
        ConfigError: it cannot be read, has an invalid or unknown key, or a rule names an unknown channel or metric.
    """
    rules = read_toml(path, AlertRules, "rules")
    for fault in faults(rules):
        raise ConfigError(f"rules {str(path)!r}: {fault}")
    return rules


def faults(rules: AlertRules, _path: Path | None = None) -> list[str]:
    """Return what is wrong with rules and channels whose keys are right: unknown names, missing parts, names that are used twice."""
    results = [*(_fault_of_rule(rule, rules) for rule in rules.rule), *map(_fault_of_channel, rules.channel)]
    names = [("rule", rule.name) for rule in rules.rule] + [("channel", channel.name) for channel in rules.channel]
    repeated = next((name for name in names if names.count(name) > 1), None)
    results += [f"the name {repeated[1]!r} is used twice: names must be unique"] if repeated else []
    return [fault for fault in results if fault]


def _fault_of_channel(channel: Channel) -> str | None:
    lacking = next((names for names in _NEEDS[channel.kind] if not any(getattr(channel, name) for name in names)), None)
    if channel.kind == "alertmanager" and channel.quiet:
        return f"channel {channel.name!r} (alertmanager) cannot be quiet, or Alertmanager takes the alerts for over: mute them there"
    return f"channel {channel.name!r} ({channel.kind}) needs {' or '.join(lacking)}" if lacking else None


def _fault_of_rule(rule: AlertRule, rules: AlertRules) -> str | None:
    channel_names = {channel.name for channel in rules.channel}
    unknown = next((name for name in rule.channels if name not in channel_names), None)
    if unknown:
        return f"rule {rule.name!r} names the unknown channel {unknown!r}: add a [[channel]] with that name"
    metric = next((name for name in rule.metrics if name not in METRICS), None)
    if metric:
        return f"rule {rule.name!r} names the unknown metric {metric!r}: choose from {', '.join(METRICS)}"
    if rule.kind == "limit" and (rule.above is None) == (rule.below is None):
        return f"rule {rule.name!r} (limit) needs either above or below"
    if rule.kind == "limit" and len(rule.metrics) != 1:
        return f"rule {rule.name!r} (limit) needs exactly one metric, which gives the unit of the limit"
    return None
