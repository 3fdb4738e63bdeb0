"""Campaigns in the registry: what was asked for, the devices frozen at the start, which group is on its way, and how it stands."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.campaigns.campaign_file import Rules

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

# paused: by somebody; aborted: by a rule, with the reason.
State: TypeAlias = Literal["running", "paused", "aborted", "done", "cancelled"]
IS_OVER = frozenset({"done", "cancelled"})

SCHEMA = """CREATE TABLE campaigns (
    campaign TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT,
    wave INTEGER NOT NULL,
    waves INTEGER NOT NULL,
    rules BLOB NOT NULL,
    made_ns INTEGER NOT NULL,
    judged_from INTEGER NOT NULL,
    ended_ns INTEGER
);
CREATE TABLE campaign_cells (
    campaign TEXT NOT NULL,
    model TEXT NOT NULL,
    mode TEXT NOT NULL,
    device TEXT NOT NULL,
    wave INTEGER NOT NULL,
    job TEXT,
    impossible TEXT,
    PRIMARY KEY (campaign, model, mode, device)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign: up to group `wave` of `waves` (from 0) devices may measure; `reason` says why it stands where it does.

    What was changed up to the serial `judged_from` counts for no abort criterion: somebody resumed the campaign in spite of it.
    """

    campaign: str
    state: State
    reason: str | None
    wave: int
    waves: int
    rules: Rules
    made_ns: int
    judged_from: int
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One model in one mode on one device: the job that measures it, or why that is impossible."""

    model: str
    mode: str
    device: str
    wave: int
    job: str | None
    impossible: str | None


def insert(connection: sqlite3.Connection, campaign: Campaign, cells: list[Cell]) -> None:
    """Keep a new campaign with its cells, within the caller's transaction."""
    connection.execute(
        "INSERT INTO campaigns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            campaign.campaign,
            campaign.state,
            campaign.reason,
            campaign.wave,
            campaign.waves,
            msgspec.json.encode(campaign.rules),
            campaign.made_ns,
            campaign.judged_from,
            campaign.ended_ns,
        ),
    )
    rows = [(campaign.campaign, one.model, one.mode, one.device, one.wave, one.job, one.impossible) for one in cells]
    connection.executemany("INSERT INTO campaign_cells VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def write(connection: sqlite3.Connection, campaign: Campaign) -> None:
    """Keep how a campaign stands, within the caller's transaction."""
    connection.execute(
        "UPDATE campaigns SET state = ?, reason = ?, wave = ?, judged_from = ?, ended_ns = ? WHERE campaign = ?",
        (campaign.state, campaign.reason, campaign.wave, campaign.judged_from, campaign.ended_ns, campaign.campaign),
    )


def read(registry: "Registry") -> list[Campaign]:
    """Return every campaign, the newest first."""
    return [_campaign(row) for row in registry.query("SELECT * FROM campaigns ORDER BY made_ns DESC")]


def open_ones(registry: "Registry") -> list[Campaign]:
    """Return the campaigns that have not ended."""
    return [_campaign(row) for row in registry.query("SELECT * FROM campaigns WHERE ended_ns IS NULL ORDER BY made_ns")]


def find(registry: "Registry", campaign: str) -> Campaign:
    """Return the campaign of that name.

    Raises:
        ConfigError: there is none.
    """
    rows = registry.query("SELECT * FROM campaigns WHERE campaign = ?", campaign)
    if not rows:
        message = f"no campaign is named {campaign!r}: `edgemeter fleet campaign list` names them"
        raise ConfigError(message)
    return _campaign(rows[0])


def cells(registry: "Registry", campaign: str) -> list[Cell]:
    """Return the cells of a campaign, by model, mode and device."""
    statement = "SELECT model, mode, device, wave, job, impossible FROM campaign_cells WHERE campaign = ? ORDER BY model, mode, device"
    return [Cell(**dict(row)) for row in registry.query(statement, campaign)]


def counts(registry: "Registry", campaign: str, since: int = 0) -> dict[tuple[int, str], int]:
    """Return how many executions of a campaign are in which state, by (group, state); of those changed after the serial `since`."""
    statement = "SELECT wave, state, COUNT(*) AS n FROM executions WHERE campaign = ? AND serial > ? GROUP BY wave, state"
    rows = registry.query(statement, campaign, since)
    return {(row["wave"], row["state"]): row["n"] for row in rows}


def _campaign(row: sqlite3.Row) -> Campaign:
    known = dict(row)
    known["rules"] = msgspec.json.decode(known["rules"], type=Rules)
    return Campaign(**known)
