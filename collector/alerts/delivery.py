"""Delivery: what waits goes to its channels, a thread each, and leaves the outbox as its message is accepted.

A channel sends its next message only when the answer to the last one is on the disk. Nobody waits longer than `MESSAGE_S` for an answer:
the thread that does so is given up, and ends with the process.
"""

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError, one_line
from edgemeter.agent.base.statements import Statements
from edgemeter.collector.alerts import outbox
from edgemeter.collector.alerts.channels import MessageAnswer, sent_messages
from edgemeter.collector.alerts.notices import Notice
from edgemeter.collector.alerts.outbox import FIRST_PAUSE_NS, LONGEST_PAUSE_NS, REFUSED_PAUSE_NS, UnsentNotice, due_notices
from edgemeter.collector.alerts.rules import AlertRules, Channel
from edgemeter.collector.trend.watch_file import WatchStore

# From the beginning of a message to its answer, and how long a channel begins messages in one check.
MESSAGE_S, CHANNEL_S = 20.0, 60.0
# So many refusals in a row, and the others of the channel wait for the next check.
MOST_REFUSALS = 3
# What was accepted and cannot be noted would be sent again: it is tried for so long.
STORE_S, STORE_AGAIN_S = 20.0, 0.5
_SEVERITIES = ("critical", "warning", "info")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome for a channel of one check: how many notices it accepted, and why it did not accept others (None: it has them all)."""

    channel: str
    notices: int
    error: str | None


@dataclass(slots=True)
class _Load:
    """The notices that one channel is sent in this check, by the number of the alert; those that are answered leave it."""

    channel: Channel
    page: str | None
    unsent: dict[int, UnsentNotice]
    accepted: int = 0
    error: str | None = None

    def batches(self) -> list[list[Notice]]:
        """Return the notices, critical ones first; a message that was refused must not hold up others, so each of it goes alone."""
        ordered = sorted(self.unsent.values(), key=lambda unsent: (_SEVERITIES.index(unsent.alert.firing.severity), unsent.number))
        together = [unsent.notice(self.page) for unsent in ordered if unsent.state != "refused"]
        alone = [[unsent.notice(self.page)] for unsent in ordered if unsent.state == "refused"]
        return [together, *alone] if together else alone


# A channel's answer to a message, or how it ended (None: well), and what it waits for before it goes on.
_Event = tuple[_Load, MessageAnswer | BaseException | None, threading.Event]


def deliver(file: WatchStore, rules: AlertRules, now_ns: int, *, is_retry: bool = False) -> list[Sent]:
    """Send what is due, or everything (`is_retry`), but nothing that waits for the end of quiet times; return the outcome of each channel.

    Raises:
        UnavailableError: an answer cannot be noted, the disk is full.
        TransientError: somebody else holds the store.
    """
    with file.reading() as statements:
        waiting = [unsent for unsent in outbox.unsent_notices(statements) if not unsent.is_held]
    loads = []
    for channel in rules.channel:
        of_channel = [unsent for unsent in waiting if unsent.channel == channel.name]
        if not is_retry and channel.kind != "alertmanager":
            of_channel = due_notices(of_channel, now_ns)
        if of_channel:
            loads.append(_Load(channel, rules.link, {unsent.alert.number: unsent for unsent in of_channel}))
    events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
    for load in loads:
        threading.Thread(target=_send, args=(load, events), name=f"edgemeter-alerts-{load.channel.name}", daemon=True).start()
    active = len(loads)
    while active:
        load, outcome, stored = events.get()
        if isinstance(outcome, MessageAnswer):
            _note_answer(file, load, outcome, now_ns)
        else:
            active -= 1
            if outcome is not None and load.unsent:
                _note_failure(file, load, outcome, now_ns)
        stored.set()
    return [Sent(load.channel.name, load.accepted, load.error) for load in loads]


def _send(load: _Load, events: "queue.SimpleQueue[_Event]") -> None:
    outcome: BaseException | None = None
    try:
        for answer in _answers(load):
            stored = threading.Event()
            events.put((load, answer, stored))
            stored.wait()
    except BaseException as error:  # noqa: BLE001 - a fault of ours in one channel, too, is that channel's alone, and is noted there
        outcome = error
    events.put((load, outcome, threading.Event()))


def _answers(load: _Load) -> Iterator[MessageAnswer]:
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


def _note_answer(file: WatchStore, load: _Load, answer: MessageAnswer, now_ns: int) -> None:
    answered = [load.unsent.pop(notice.number) for notice in answer.notices]
    error = answer.refusal
    if error is None:
        load.accepted += len(answered)
        _store(file, lambda statements: outbox.delivered(statements, answered))
    else:
        load.error = error
        _store(file, lambda statements: outbox.not_delivered(statements, answered, error, now_ns + REFUSED_PAUSE_NS, "refused"))


def _note_failure(file: WatchStore, load: _Load, error: BaseException, now_ns: int) -> None:
    text = str(error) if isinstance(error, EdgemeterError) else f"channel {load.channel.name!r}: {type(error).__name__}: {one_line(error)}"
    unsent_notices = list(load.unsent.values())
    if isinstance(error, ConfigError):
        # Settings are corrected here, and asking costs nothing.
        pause_ns = 0
    elif isinstance(error, UnavailableError):
        pause_ns = REFUSED_PAUSE_NS
    else:
        pause_ns = min(FIRST_PAUSE_NS << min(max(unsent.tries for unsent in unsent_notices), 10), LONGEST_PAUSE_NS)
    load.error = text
    _store(file, lambda statements: outbox.not_delivered(statements, unsent_notices, text, now_ns + pause_ns))


def _store(file: WatchStore, write: Callable[[Statements], None]) -> None:
    def transact() -> None:
        with file.writing() as statements:
            write(statements)

    until_s = time.monotonic() + STORE_S
    while True:
        try:
            return file.in_need(transact)
        except (UnavailableError, TransientError):
            if time.monotonic() > until_s:
                raise
            time.sleep(STORE_AGAIN_S)
