"""What `edgemeter watch --every` does: a suite measured at regular times, for ever or so many times."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from edgemeter.agent import run_command
from edgemeter.agent.errors import ConfigError, EdgemeterError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds(every: str) -> float:
    """Return a length of time such as 90s, 5m, 2h or 1d.

    Raises:
        ConfigError: it is none.
    """
    found = TIME.fullmatch(every.strip())
    if found is None or float(found.group(1)) <= 0:
        message = f"{every!r} is no length of time: give 30s, 5m, 2h or 1d"
        raise ConfigError(message)
    return float(found.group(1)) * UNITS_S[found.group(2)]


def again_and_again(
    suite: Path,
    period_s: float,
    options: Mapping[str, Any],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[run_command.Outcome]:
    """Measure the suite at the beginning of every period and yield what came of it; a period that was missed is left out.

    A suite that fails is told and tried again in the next period; records that could not be delivered stay in the outbox.

    Raises:
        ConfigError: the suite's file or an option is wrong, which time does not mend.
    """
    told = _run_options(options, period_s)
    begun, place = clock(), 0
    for done in range(options["times"]) if options["times"] else _for_ever():
        try:
            outcome = run_command.run(run_command.suite_of(suite, None, told), told, say)
            for error in outcome.errors:
                say(str(error))
            if outcome.undelivered:
                say(outcome.undelivered)
            yield outcome
            if outcome.interruption is not None:
                raise outcome.interruption
        except ConfigError:
            raise
        except EdgemeterError as error:
            say(f"nothing measured this time: {error}")
        if options["times"] and done + 1 == options["times"]:
            return
        late = int((clock() - begun) / period_s)
        if late > place:
            say(f"the suite takes longer than {period_s:g} s: {late - place} of its times left out")
        place = max(place, late) + 1
        sleep(max(0.0, begun + place * period_s - clock()))


def _run_options(options: Mapping[str, Any], period_s: float) -> dict[str, Any]:
    """Return what `edgemeter run` is told: an absent broker does not end it, and delivery does not outlast the period."""
    return {
        **dict.fromkeys(run_command.CASE_OPTIONS),
        **{key: options[key] for key in ("power", "broker", "device", "fleet", "config")},
        "if_no_broker": "keep",
        "delivery_timeout": min(60.0, period_s),
    }


def _for_ever() -> Iterator[int]:
    place = 0
    while True:
        yield place
        place += 1
