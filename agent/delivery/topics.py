"""MQTT topics: `edgemeter/v1/<fleet>/<device>/<kind>`."""

from dataclasses import dataclass
from typing import Literal, get_args

from edgemeter.agent.errors import ConfigError

Kind = Literal["birth", "state", "result", "receipt", "command", "progress", "job", "health", "want", "content", "renew", "certificate"]
ROOT = "edgemeter/v1"
EVERY_RESULT = f"{ROOT}/+/+/result"
EVERY_STATE = f"{ROOT}/+/+/state"
EVERY_BIRTH = f"{ROOT}/+/+/birth"
EVERY_HEALTH = f"{ROOT}/+/+/health"
EVERY_JOB = f"{ROOT}/+/+/job"
EVERY_WANT = f"{ROOT}/+/+/want"
EVERY_PROGRESS = f"{ROOT}/+/+/progress"
EVERY_RENEW = f"{ROOT}/+/+/renew"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic, taken apart."""

    fleet: str
    device: str
    kind: Kind

    def __str__(self) -> str:
        return f"{ROOT}/{self.fleet}/{self.device}/{self.kind}"


def parse(text: str) -> Topic:
    """Return the parts of a topic.

    Raises:
        ConfigError: it is not one of ours.
    """
    parts = text.split("/")
    if len(parts) == 5 and "/".join(parts[:2]) == ROOT and parts[4] in get_args(Kind) and all(parts):
        kind: Kind = parts[4]  # type: ignore[assignment]
        return Topic(parts[2], parts[3], kind)
    message = f"{text!r} is not a topic of ours ({ROOT}/<fleet>/<device>/<kind>)"
    raise ConfigError(message)
