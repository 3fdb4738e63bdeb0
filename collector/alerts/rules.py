"""Rules and channels of alerts: a TOML file.

`sample_alerts.toml` next to this file shows every key.
"""

import os
from pathlib import Path
from string import Template
from typing import Annotated, Literal, get_args

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import read_toml
from edgemeter.collector.trend.metrics import DEFAULT, METRICS
from edgemeter.collector.trend.watch import SeriesSelection

SAMPLE = Path(__file__).with_name("sample_alerts.toml")
RuleKind = Literal[
    "step",
    "drift",
    "limit",
    "missing",
    "invalid",
    "outlying-board",
    "device-lost",
    "outbox-stopped",
]
Severity = Literal["critical", "warning", "info"]
SEVERITIES = get_args(Severity)
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=64)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class AlertRule(SeriesSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The condition that opens an alert.

    The sample shows the fields of each kind; an absent selector matches everything.
    """

    name: _Name
    kind: RuleKind
    severity: Severity = "warning"
    channels: tuple[_Name, ...] = ()
    metrics: tuple[str, ...] = DEFAULT
    direction: Literal["worse", "both"] = "worse"
    at_least: _Positive | None = None
    above: float | None = None
    below: float | None = None
    runs: Annotated[int, msgspec.Meta(ge=1)] = 2
    hours: _Positive = 24.0

    def wants(self, *, is_worse: bool) -> bool:
        return is_worse or self.direction == "both"


class Channel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of a service of Apprise, of an MQTT topic, or of an Alertmanager.

    `$NAME` in it is an environment variable.
    """

    name: _Name
    kind: Literal["apprise", "alertmanager"] = "apprise"
    url: str

    def address(self) -> str:
        """Return the address; raises ConfigError if a variable in it is not set."""
        try:
            return Template(self.url).substitute(os.environ)
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"a variable in the url of channel {self.name!r} is not set ({error}): set it; "
                "$$ is a dollar sign"
            ) from error


class AlertRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file. `link` is the address of the fleet's page, for links in messages."""

    rule: tuple[AlertRule, ...] = ()
    channel: tuple[Channel, ...] = ()
    link: str | None = None


# The built-in rules, for use without a rules file.
USUAL = AlertRules(
    rule=(
        AlertRule(name="confirmed step", kind="step", severity="critical"),
        AlertRule(name="drift", kind="drift"),
        AlertRule(name="verdict gone invalid", kind="invalid"),
        AlertRule(
            name="outlying board",
            kind="outlying-board",
            metrics=("energy_gross_mj", "latency_p50_ms", "accuracy_value"),
        ),
        AlertRule(name="device lost", kind="device-lost", hours=1.0),
        AlertRule(name="outbox stopped", kind="outbox-stopped"),
    )
)


def read_rules(path: Path) -> AlertRules:
    """Return the rules in `path`.

    Raises:
        ConfigError: it cannot be read, has an invalid or unknown key, or a rule names an unknown
            channel or metric.
    """
    rules = read_toml(path, AlertRules, "rules")
    for fault in faults(rules):
        raise ConfigError(f"rules {str(path)!r}: {fault}")
    return rules


def faults(rules: AlertRules, _path: Path | None = None) -> list[str]:
    """Return the faults of rules and channels whose keys are valid.

    Faults are unknown names, missing parts and duplicate names.
    """
    channels = [channel.name for channel in rules.channel]
    names = [
        *(f"rule {rule.name!r}" for rule in rules.rule),
        *(f"channel {name!r}" for name in channels),
    ]
    results = [
        f"the name of {name} is used twice: names must be unique"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for rule in rules.rule:
        unknown = [
            f"channel {name!r}: add a [[channel]] with that name"
            for name in rule.channels
            if name not in channels
        ]
        unknown += [
            f"metric {name!r}: choose from {', '.join(METRICS)}"
            for name in rule.metrics
            if name not in METRICS
        ]
        results += [f"rule {rule.name!r} names the unknown {fault}" for fault in unknown]
        if rule.kind == "limit" and (
            (rule.above is None) == (rule.below is None) or len(rule.metrics) != 1
        ):
            results.append(
                f"rule {rule.name!r} (limit) needs either above or below, and exactly one "
                "metric, which gives the unit of the limit"
            )
    return results
