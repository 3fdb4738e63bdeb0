"""Limits of a request (service level objectives): `latency=50ms`, of text also `ttft=500ms,tpot=50ms`; in ms by the name of the metric."""

from collections.abc import Mapping

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import plain_digits

METRICS: Mapping[str, str] = {"ttft": "TTFT", "tpot": "TPOT", "latency": "latency"}
_UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1000.0}
# A limit outside of a microsecond to an hour is a slip of the pen.
_LEAST_MS, _MOST_MS = 1e-3, 3_600_000.0


def parse_duration_ms(text: str, name: str) -> float:
    """Return a time such as `60ms` or `1.5s` in ms; raises ConfigError, which names the setting, where the text is none."""
    if (duration_ms := _duration_ms(text)) is None:
        raise ConfigError(f"{name} {text.strip()[:40]!r} is no time from 1us to 3600s: write 500us, 60ms or 1.5s")
    return duration_ms


def parse_slo(text: str) -> dict[str, float]:
    """Return the limits in ms; raises ConfigError where the text states none."""
    limits_ms: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = (word.strip().lower() for word in part.partition("="))
        duration_ms = _duration_ms(amount)
        if name not in METRICS or name in limits_ms or duration_ms is None:
            raise ConfigError(
                f"slo {part.strip()[:40]!r} is no limit: write ttft=500ms, tpot=50ms or latency=4s, each once, with commas between"
            )
        limits_ms[name] = duration_ms
    return limits_ms


def _duration_ms(text: str) -> float | None:
    amount = text.strip().lower()
    unit = next((unit for unit in _UNITS_MS if amount.endswith(unit)), "")
    number = amount.removesuffix(unit).strip()
    duration_ms = float(number) * _UNITS_MS[unit] if unit and number.replace(".", "", 1).isdecimal() else 0.0
    return duration_ms if _LEAST_MS <= duration_ms <= _MOST_MS else None


def slo_text(limits_ms: Mapping[str, float]) -> str:
    """Return the limits in words: `TTFT 500 ms, TPOT 50 ms`."""
    return ", ".join(f"{METRICS.get(name, name)} {plain_digits(limit)} ms" for name, limit in limits_ms.items())
