"""Sending: what happened goes to the channels of its rule. What does not get through is kept, and tried again at the next check."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.collector.alerts import lifecycle
from edgemeter.collector.alerts.lifecycle import Change
from edgemeter.collector.alerts.notice import Notice, Sender, of_alert, of_change
from edgemeter.collector.alerts.rules import Channel, Event, Rules
from edgemeter.collector.alerts.secrets import secret
from edgemeter.collector.trend.watch_file import WatchFile

logger = logging.getLogger(__name__)
# A message that a channel does not take so often is given up, and said so.
MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """What went to a channel: how many notices, and why they did not get there (None: they did)."""

    channel: str
    notices: int
    error: str | None


def sender_of(channel: Channel) -> Sender:
    """Return what sends to `channel`.

    Raises:
        ConfigError: its address or a secret cannot be read.
    """
    from edgemeter.collector.alerts import alertmanager, apprise_address, email_message, ntfy, webhook  # noqa: PLC0415 - what sends

    if channel.kind == "email":
        return email_message.EmailSender(
            name=channel.name,
            host=channel.host or "",
            sender=channel.sender or "",
            recipients=channel.recipients,
            port=channel.port,
            security=channel.security,
            user=channel.user,
            password=secret("password", channel.name, channel.password_file, channel.password_env),
        )
    url = channel.url or secret("address", channel.name, channel.url_file, channel.url_env) or ""
    if channel.kind == "webhook":
        return webhook.Webhook(channel.name, url, channel.format)
    if channel.kind == "alertmanager":
        return alertmanager.Alertmanager(channel.name, url)
    if channel.kind == "ntfy":
        token = secret("token", channel.name, channel.token_file, channel.token_env)
        return ntfy.Ntfy(channel.name, url, channel.topic or "", token)
    return apprise_address.AppriseAddress(channel.name, url)


def planned(rules: Rules, changes: Sequence[Change]) -> dict[str, list[Notice]]:
    """Return what of `changes` goes to which channel."""
    of_rule = {rule.name: rule.channels for rule in rules.rule}
    return {
        channel.name: [
            of_change(change, rules.link)
            for change in changes
            if change.event in channel.send and channel.name in of_rule.get(change.alert.firing.rule, ())
        ]
        for channel in rules.channel
    }


def send(file: WatchFile, rules: Rules, changes: Sequence[Change]) -> list[Sent]:
    """Send what happened, and what did not get through before; return what became of it, a line a channel."""
    plan = planned(rules, changes)
    sent = []
    for channel in rules.channel:
        before = _unsent(file, channel.name, rules)
        again = [notice for _, notice in before] + plan[channel.name]
        # Alertmanager has to hear of everything that is open, again and again.
        notices = _without_doubles(again + _still_open(file, channel, rules)) if channel.kind == "alertmanager" else again
        if not notices:
            continue
        try:
            sender_of(channel).send(notices)
        except EdgemeterError as error:
            _keep(file, channel.name, plan[channel.name], str(error))
            sent.append(Sent(channel.name, len(notices), str(error)))
        else:
            _forget(file, [number for number, _ in before])
            sent.append(Sent(channel.name, len(notices), None))
    return sent


def test(rules: Rules, name: str) -> None:
    """Send a notice that says that it is a test.

    Raises:
        ConfigError: there is no such channel.
    """
    channel = next((one for one in rules.channel if one.name == name), None)
    if channel is None:
        message = f"there is no channel {name!r}: the rules have {', '.join(one.name for one in rules.channel) or 'none'}"
        raise ConfigError(message)
    text = "Sent by `edgemeter alerts test`: nothing happened."
    sender_of(channel).send([Notice("opened", 0, "test", "info", "test of Edgemeter", text, {}, "1970-01-01T00:00:00Z", None, rules.link)])


def _still_open(file: WatchFile, channel: Channel, rules: Rules) -> list[Notice]:
    names = {rule.name for rule in rules.rule if channel.name in rule.channels}
    return [of_alert("updated", alert, rules.link) for alert in lifecycle.read(file) if alert.firing.rule in names]


def _without_doubles(notices: list[Notice]) -> list[Notice]:
    return list({notice.number: notice for notice in reversed(notices)}.values())[::-1]


def _unsent(file: WatchFile, channel: str, rules: Rules) -> list[tuple[int, Notice]]:
    with file.reading() as connection:
        rows = connection.execute("SELECT number, alert, event FROM unsent WHERE channel = ? ORDER BY number", (channel,)).fetchall()
    found: list[tuple[int, Notice]] = []
    for number, alert, event in rows:
        kept: Event = event
        found.append((number, of_alert(kept, lifecycle.one_of(file, alert), rules.link)))
    return found


def _keep(file: WatchFile, channel: str, notices: Sequence[Notice], error: str) -> None:
    with file.writing() as connection:
        connection.execute("UPDATE unsent SET tries = tries + 1, error = ? WHERE channel = ?", (error, channel))
        connection.executemany(
            "INSERT INTO unsent (alert, channel, event, tries, error) VALUES (?, ?, ?, 1, ?)",
            [(notice.number, channel, notice.event, error) for notice in notices],
        )
        lost = connection.execute("DELETE FROM unsent WHERE tries >= ?", (MOST_TRIES,)).rowcount
    if lost:
        logger.error("channel %r did not take %d notices in %d tries: they are given up", channel, lost, MOST_TRIES)


def _forget(file: WatchFile, numbers: Sequence[int]) -> None:
    with file.writing() as connection:
        connection.executemany("DELETE FROM unsent WHERE number = ?", [(number,) for number in numbers])
