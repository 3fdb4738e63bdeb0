"""The notices that a channel should have and has not, from the table `unsent` of the watch file, for the page, `/metrics` and the check."""

from dataclasses import dataclass

from edgemeter.agent.base.figures import count, stamp
from edgemeter.agent.base.statements import Statements

# A row of an earlier version has no time of its own.
SINCE = "coalesce(nullif(since_ns, 0), alerts.updated_ns)"
_WAITING = f"""SELECT channel, count(DISTINCT alert), min({SINCE}), max(error), min(next_ns)
FROM unsent JOIN alerts ON alerts.number = alert WHERE unsent.state NOT IN ('quiet', 'over') GROUP BY channel ORDER BY channel"""  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class WaitingChannel:
    """A channel with undelivered notices: how many, since when, why (None: not tried yet), and when they are tried again (0: at once).

    Notices that wait for the end of quiet times, or are over, are not among them.
    """

    channel: str
    notices: int
    since_ns: int
    error: str | None
    next_ns: int

    @property
    def sentence(self) -> str:
        """How many, where, since when, and why."""
        notices, since = count(self.notices, "notice"), stamp(self.since_ns)
        return f"{notices} undelivered to {self.channel} since {since} UTC: {self.error or 'not tried yet'}"


def waiting_channels(statements: Statements) -> list[WaitingChannel]:
    """Return the channels that have not got everything."""
    return [WaitingChannel(*row) for row in statements.execute(_WAITING).fetchall()]


def last_check_ns(statements: Statements) -> int | None:
    """Return when the last check ended, None if none has."""
    ended_ns: int | None = statements.execute("SELECT max(ended_ns) FROM alert_checks").fetchone()[0]
    return ended_ns
