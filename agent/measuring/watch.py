"""A suite is measured again and again, at the start of every period."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import msgspec

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.measuring.measure_suite import SessionOutcome, measure_suite
from edgemeter.agent.measuring.settings import DELIVERY_TIMEOUT_S, SessionSettings
from edgemeter.agent.measuring.suites import suite_of
from edgemeter.agent.session.session import OnEvent


def watch_suite(
    suite: Path,
    period_s: float,
    settings: SessionSettings,
    times: int | None,
    report: Callable[[str], None],
    progress: Callable[[], AbstractContextManager[OnEvent]],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = interrupts.sleep,
) -> Iterator[SessionOutcome]:
    """Measure the suite at the start of every period and yield the outcome.

    A missed period is skipped. A suite that fails is reported and tried again in the next period;
    undelivered records stay in the outbox. Without `times` it never ends. `report` receives what
    happens between the sessions, `progress` gives each session its handler of events.

    Raises:
        ConfigError: the suite's file or an option is wrong, so that waiting does not help.
    """
    # A missing broker does not end it, and delivery ends within the period.
    timeout_s = min(DELIVERY_TIMEOUT_S, period_s)
    settings = msgspec.structs.replace(settings, if_no_broker="keep", delivery_timeout_s=timeout_s)
    start_s, period = clock(), 0
    for number in count(1):
        try:
            cases = suite_of(suite, None, Settings())
            with progress() as on_event:
                outcome = measure_suite(cases, settings, on_event, report)
            for remark in (*outcome.errors, *filter(None, [outcome.undelivered, outcome.saved])):
                report(str(remark))
            yield outcome
            if outcome.interruption is not None:
                raise outcome.interruption
        except ConfigError:
            raise
        except EdgemeterError as error:
            report(f"nothing measured this time: {error}")
        if number == times:
            return
        late = int((clock() - start_s) / period_s)
        if late > period:
            report(
                f"the suite takes longer than {period_s:g} s: skipped {late - period} "
                "of its periods"
            )
        period = max(period, late) + 1
        sleep(max(0.0, start_s + period * period_s - clock()))
