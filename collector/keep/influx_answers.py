"""What an InfluxDB's answers mean, whichever version gave them (measured on 2.7.12 and 1.6.7).

204 stored. 400: a line is malformed; version 2 then stores nothing of the batch, version 1 the rest. 422 (version 1: 400): a point
does not fit what is there, and the rest is stored. 401 and 403 the token; 404 organisation, bucket or database; 429 and 5xx later,
but for version 1 that has no such retention policy (500).
"""

import json
from typing import Any

from edgemeter.agent.errors import ConfigError, EdgemeterError, TransientError
from edgemeter.collector.keep.influx_config import TOKEN_VARIABLES, InfluxConfig

SHOWN_CHARACTERS = 300


class PointsRefusedError(EdgemeterError):
    """Something in the batch is not taken; `said` is the server's whole message."""

    def __init__(self, said: str) -> None:
        super().__init__(short(said))
        self.said = said


class NotFoundError(ConfigError):
    """The organisation, the bucket, the database or the whole interface is not there."""


def error_of(config: InfluxConfig, status: int | None, body: Any, reason: str = "") -> EdgemeterError:
    """Return what an answer that is no success comes to."""
    said = _message(body) or reason
    shown, where = short(said), str(config)
    if status in {400, 413, 422}:
        return PointsRefusedError(said)
    if status in {401, 403}:
        remedy = f"give one that may do that there ({TOKEN_VARIABLES[0]} or --influx-token-file)"
        return ConfigError(f"InfluxDB at {where} does not accept the token ({shown}): {remedy}")
    if status == 404:
        return NotFoundError(f"InfluxDB at {where}: {shown}: {_remedy(config, said)}")
    if "retention policy not found" in said:
        return ConfigError(f"InfluxDB at {where}: {shown}: name one that exists (rp=), or make it (edgemeter collector init-influx)")
    return TransientError(f"InfluxDB at {where} answers {status} ({shown}): trying again")


def silent(config: InfluxConfig, error: BaseException) -> TransientError:
    """Return what it comes to when there is no answer."""
    return TransientError(f"no InfluxDB answers at {config.url} ({short(str(error))}): start it; the ledger keeps everything until then")


def _remedy(config: InfluxConfig, said: str) -> str:
    if config.database is not None:
        return "name one that exists (?db=), or a user who may make it"
    if "page not found" in said:
        return "it has nothing of version 2; for InfluxDB 1 write ?db=DATABASE behind the URL"
    return "name those that exist (--influx-org, --influx-bucket), or a token that may make the bucket"


def _message(body: Any) -> str:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        document = json.loads(text)
        text = str(document["message"] if "message" in document else document["error"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return text


def short(said: str) -> str:
    """Return what a server said as one line of readable length."""
    return " ".join(said.split())[:SHOWN_CHARACTERS]
