"""One check: the rules are evaluated, the changes are written with what they make due, and each channel is notified, a thread each.

What a channel knows is written when it has answered: a check that is killed loses nothing, and nothing is sent twice but where the answer
was lost. Nobody waits longer than `MESSAGE_S` for an answer: the thread that does is given up, and ends with the process.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.contract.figures import LATENCY
from edgemeter.collector.alerts.channels import sent_messages
from edgemeter.collector.alerts.firing import Firing, FiringContext, firings
from edgemeter.collector.alerts.notified import Alert, AlertEvent, settle
from edgemeter.collector.alerts.rules import AlertRules, Channel
from edgemeter.collector.ledgers.place import ledger_place
from edgemeter.collector.runs.store import open_store
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.watch_file import WatchStore, annotations_of, open_watch

# From the beginning of a message to its answer, and how long a channel begins messages in one check.
MESSAGE_S, CHANNEL_S = 20.0, 60.0
# Without a run that is ok in so many days a check that finds nothing says little.
NEWEST_DAYS = 7
# What was accepted and cannot be written would be sent again: it is tried for so long.
STORE_S, STORE_AGAIN_S = 20.0, 0.5
_SENT = "UPDATE notified SET state = ?, sent_ns = ?, due_ns = NULL, error = NULL WHERE alert = ? AND channel = ?"
_NOT_SENT = "UPDATE notified SET error = ? WHERE channel = ? AND due_ns IS NOT NULL"
_Answer = tuple[Channel, Sequence[Alert], EdgemeterError | None]


class AlertCheck(NamedTuple):
    """How alerts changed, how many notifications each channel accepted, of how many series, and whether any has a new run that is ok."""

    changes: Sequence[tuple[AlertEvent, Alert]]
    sent: Mapping[str, int]
    series: int
    has_new: bool


def check_alerts(stores: Sequence[str], rules: AlertRules, clock: Callable[[], int]) -> AlertCheck:
    """Check the rules once on the runs in `stores`; the alerts are those of the first one.

    Raises:
        TransientError: another check is in progress, or somebody else holds the store.
        UnavailableError: the disk is full. What was not noted is not sent.
    """
    ledger = ledger_place(stores[0])
    # Everything is read under the lock: a check with older facts would close what a newer one opened.
    with open_watch(ledger) as file, file.checking():
        history = History(open_store(*stores))
        now_ns = clock()
        firing_now = firings(rules.rule, FiringContext(history, annotations_of(ledger), history.store.devices(), now_ns))
        with file.writing() as statements:
            changes, by_channel = settle(statements, firing_now, rules, now_ns)
        sent = Counter[str]()
        messages = {channel: sent_messages(channel, alerts, rules.link, now_ns) for channel, alerts in by_channel.items()}
        for channel, answered, error in _answers(messages):
            sent[channel.name] += len(answered)
            rows = [(alert.state, now_ns, alert.number, channel.name) for alert in answered]
            _write(file, *((_SENT, rows) if error is None else (_NOT_SENT, [(str(error), channel.name)])))
        series = history.series()
        newest = history.columns(series, [LATENCY], history.newest_day() + 1 - NEWEST_DAYS)
        return AlertCheck(changes, sent, len(series), bool(newest.is_ok.any()))


def send_test(rules: AlertRules, name: str) -> None:
    """Send a test message to a channel; raises ConfigError if the channel does not exist, and as `sent_messages`."""
    channel = next((channel for channel in rules.channel if channel.name == name), None)
    if channel is None:
        raise ConfigError(f"no channel {name!r}: the rules define {', '.join(channel.name for channel in rules.channel) or 'none'}")
    text = "Sent by `edgemeter trend alerts test`: no alert has opened."
    alert = Alert(0, Firing("test", "info", "test of Edgemeter", text, {}, ()), time.time_ns())
    messages = sent_messages(channel, [alert], None, alert.opened_ns)
    for _, _, error in _answers({channel: messages}):
        if error is not None:
            raise error


def _answers(messages: Mapping[Channel, Iterator[Sequence[Alert]]]) -> Iterator[_Answer]:
    """Yield what a channel accepts, or why it does not, as answers come; its next message goes when whoever reads this is ready."""
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    deadlines_s: dict[Channel, float] = {}
    until_s = time.monotonic() + CHANNEL_S

    def send(channel: Channel) -> None:
        try:
            answers.put((channel, next(messages[channel], ()), None))
        except EdgemeterError as error:
            answers.put((channel, (), error))
        except Exception as error:  # noqa: BLE001 - whatever a service of Apprise does is that channel's alone; its words may be secret
            answers.put((channel, (), TransientError(f"it fails with {type(error).__name__}")))

    def start(channel: Channel) -> None:
        deadlines_s[channel] = time.monotonic() + MESSAGE_S
        threading.Thread(target=send, args=(channel,), daemon=True).start()

    for channel in messages:
        start(channel)
    while deadlines_s:
        first = min(deadlines_s, key=lambda channel: deadlines_s[channel])
        try:
            channel, answered, error = answers.get(timeout=max(0, deadlines_s[first] - time.monotonic()))
        except queue.Empty:
            channel, answered, error = first, (), TransientError(f"no complete answer within {MESSAGE_S:g} s")
        # Who answers too late was given up; who has nothing more to send has ended.
        if deadlines_s.pop(channel, None) is not None and (answered or error):
            yield channel, answered, error
            if error is None and time.monotonic() < until_s:
                start(channel)


def _write(file: WatchStore, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    def transact() -> None:
        with file.writing() as statements:
            statements.executemany(statement, rows)

    until_s = time.monotonic() + STORE_S
    while True:
        try:
            return file.in_need(transact)
        except (UnavailableError, TransientError):
            if time.monotonic() > until_s:
                raise
            time.sleep(STORE_AGAIN_S)
