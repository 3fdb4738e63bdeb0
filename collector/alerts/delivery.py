"""Delivery: what waits goes to its channels, a thread each, and leaves the outbox as its message is accepted.

A channel sends its next message only when the answer to the last one is on the disk. Nobody waits longer than `MESSAGE_S` for an answer:
the thread that does so is given up, and ends with the process.
"""

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError, one_line
from edgemeter.agent.base.statements import Statements
from edgemeter.collector.alerts import outbox
from edgemeter.collector.alerts.channels import Answer, sent_messages
from edgemeter.collector.alerts.lifecycle import read_alerts
from edgemeter.collector.alerts.notices import Notice, notice_of_alert
from edgemeter.collector.alerts.outbox import LONGEST_PAUSE_NS, REFUSED_PAUSE_NS, UnsentNotice
from edgemeter.collector.alerts.rules import AlertRules, Channel
from edgemeter.collector.trend.watch_file import WatchStore

# From the beginning of a message to its answer, and how long a channel begins messages in one check.
MESSAGE_S, CHANNEL_S = 20.0, 60.0
# So many refusals in a row, and the others of the channel wait for the next check.
MOST_REFUSALS = 3
# What was accepted and cannot be noted, as the disk is full, would be sent again: it is tried for so long.
STORE_S, STORE_AGAIN_S = 20.0, 0.5
_SEVERITIES = ("critical", "warning", "info")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a channel in one check: how many notices it accepted, and why it did not accept others (None: it has them all)."""

    channel: str
    notices: int
    error: str | None


@dataclass(slots=True)
class _Load:
    """What one channel is sent in this check, by the number of the alert; `unsent` becomes less as it is accepted."""

    channel: Channel
    notices: list[Notice]
    unsent: dict[int, UnsentNotice]
    accepted: int = 0
    error: str | None = None

    def batches(self) -> list[list[Notice]]:
        """Return the notices; a message that was refused does not hold up others, so each of it goes alone."""
        alone = {number for number, unsent in self.unsent.items() if unsent.state == "refused" and self.channel.kind != "alertmanager"}
        together = [notice for notice in self.notices if notice.number not in alone]
        return [*([together] if together else []), *([notice] for notice in self.notices if notice.number in alone)]


# A channel's answer to a message, or how it ended (None: well), and what it waits for before it goes on.
_Event = tuple[_Load, Answer | Exception | None, threading.Event]


def deliver(file: WatchStore, rules: AlertRules, now_ns: int, *, is_retry: bool = False) -> list[Sent]:
    """Send what waits and is due, or everything (`is_retry`) but what waits for the end of quiet times; return what became of each channel.

    Raises:
        UnavailableError: an answer cannot be noted, the disk is full.
        TransientError: somebody else holds the store.
    """
    with file.reading() as statements:
        waiting = outbox.unsent_notices(statements)
    loads = [load for channel in rules.channel if (load := _load(file, rules, channel, waiting, now_ns, is_retry=is_retry)).notices]
    events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
    for load in loads:
        threading.Thread(target=_send, args=(load, events), name=f"edgemeter-alerts-{load.channel.name}", daemon=True).start()
    active = len(loads)
    while active:
        load, outcome, stored = events.get()
        if isinstance(outcome, Answer):
            _note_answer(file, load, outcome, now_ns)
        else:
            active -= 1
            if outcome is not None and (load.unsent or load.channel.kind == "alertmanager"):
                _note_failure(file, load, outcome, now_ns)
        stored.set()
    return [Sent(load.channel.name, load.accepted, load.error) for load in loads]


def _load(file: WatchStore, rules: AlertRules, channel: Channel, waiting: Sequence[UnsentNotice], now_ns: int, *, is_retry: bool) -> _Load:
    of_channel = [unsent for unsent in waiting if unsent.channel == channel.name and not unsent.is_held]
    is_each_due = is_retry or channel.kind == "alertmanager"
    due = [unsent for unsent in of_channel if is_each_due or unsent.is_due(now_ns)]
    if due:
        # Where one is tried, those that wait because the channel could not be reached are too.
        due = [unsent for unsent in of_channel if is_each_due or unsent.is_due(now_ns, LONGEST_PAUSE_NS if unsent.state == "due" else 0)]
    due.sort(key=lambda unsent: (_SEVERITIES.index(unsent.alert.firing.severity), unsent.number))
    notices = {unsent.alert.number: unsent.notice(rules.link) for unsent in due}
    if channel.kind == "alertmanager":
        # It expects every open alert to be sent repeatedly.
        names = {rule.name for rule in rules.rule if channel.name in rule.channels}
        still_open = [alert for alert in read_alerts(file) if alert.firing.rule in names]
        notices = {alert.number: notice_of_alert("updated", alert, rules.link) for alert in still_open} | notices
    return _Load(channel, list(notices.values()), {unsent.alert.number: unsent for unsent in due})


def _send(load: _Load, events: "queue.SimpleQueue[_Event]") -> None:
    outcome: Exception | None = None
    try:
        for answer in _answers(load):
            stored = threading.Event()
            events.put((load, answer, stored))
            stored.wait()
    # A fault of ours in one channel, too, is that channel's alone.
    except Exception as error:  # noqa: BLE001
        outcome = error
    events.put((load, outcome, threading.Event()))


def _answers(load: _Load) -> Iterator[Answer]:
    until_s, refusals = time.monotonic() + CHANNEL_S, 0
    for batch in load.batches():
        answers = within(MESSAGE_S, functools.partial(sent_messages, load.channel, batch), load.channel)
        while time.monotonic() < until_s and refusals < MOST_REFUSALS:
            answer = within(MESSAGE_S, functools.partial(next, answers, None), load.channel)
            if answer is None:
                break
            refusals = refusals + 1 if answer.refusal is not None else 0
            yield answer


def within(seconds: float, call: Callable[[], _Result], channel: Channel) -> _Result:
    """Return the result of a call; raises TransientError if it has not ended after so many seconds, whatever it still does."""
    results: queue.SimpleQueue[tuple[_Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            results.put((None, error))

    threading.Thread(target=run, name=f"edgemeter-alerts-{channel.name}-message", daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TransientError(f"channel {channel.name!r}: no complete answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _note_answer(file: WatchStore, load: _Load, answer: Answer, now_ns: int) -> None:
    answered = [(notice, load.unsent.pop(notice.number, None)) for notice in answer.notices]
    if answer.refusal is None:
        load.accepted += len(answer.notices)
        _store(
            file, lambda statements: outbox.delivered(statements, [number for _, unsent in answered if unsent for number in unsent.numbers])
        )
        return
    load.error = answer.refusal

    def keep(statements: Statements) -> None:
        for notice, unsent in answered:
            if unsent is None:
                outbox.keep_notice(statements, load.channel.name, notice.number, "updated", now_ns)
        numbers = {notice.number for notice, _ in answered}
        for unsent in outbox.unsent_notices(statements):
            if unsent.channel == load.channel.name and unsent.alert.number in numbers:
                outbox.refused(statements, unsent, load.error or "", now_ns)

    _store(file, keep)


def _note_failure(file: WatchStore, load: _Load, error: Exception, now_ns: int) -> None:
    load.error = (
        str(error) if isinstance(error, EdgemeterError) else f"channel {load.channel.name!r}: {type(error).__name__}: {one_line(error)}"
    )
    # Settings are corrected here, and asking costs nothing.
    pause_ns = 0 if isinstance(error, ConfigError) else REFUSED_PAUSE_NS if isinstance(error, UnavailableError) else None

    def keep(statements: Statements) -> None:
        if load.channel.kind == "alertmanager":
            for notice in load.notices:
                outbox.keep_notice(statements, load.channel.name, notice.number, "updated", now_ns)
        waiting = [unsent for unsent in outbox.unsent_notices(statements) if unsent.channel == load.channel.name]
        numbers = {*load.unsent, *(notice.number for notice in load.notices if load.channel.kind == "alertmanager")}
        outbox.failed(statements, [unsent for unsent in waiting if unsent.alert.number in numbers], load.error or "", now_ns, pause_ns)

    _store(file, keep)


def _store(file: WatchStore, write: Callable[[Statements], None]) -> None:
    until_s = time.monotonic() + STORE_S
    while True:
        try:
            with file.writing() as statements:
                write(statements)
        except (UnavailableError, TransientError):
            if time.monotonic() > until_s:
                raise
            time.sleep(STORE_AGAIN_S)
        else:
            return
