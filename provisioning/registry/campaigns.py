"""Campaigns in the registry: what was asked for, the devices frozen at the start, which group is running, and the coverage of its cells."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.statements import Statements
from edgemeter.provisioning.registry.jobs import Execution, executions_of_campaign
from edgemeter.provisioning.registry.registry import Registry, insert_rows

GroupShare = Annotated[float, msgspec.Meta(ge=0, le=1)]
DeviceCount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
# How many devices have begun with a group: a number, or a share of all of them.
GroupEnd: TypeAlias = DeviceCount | Annotated[str, msgspec.Meta(pattern=r"^(100|[0-9]{1,2}(\.[0-9]+)?)%\Z")]
# paused: by hand; aborted: by a rule, with the reason.
CampaignState: TypeAlias = Literal["running", "paused", "aborted", "done", "cancelled"]
IS_OVER = frozenset({"done", "cancelled"})
# pending: may still become done; lost: failed, rejected, timed out or cancelled.
CellState: TypeAlias = Literal["done", "pending", "lost", "impossible"]
CELL_STATES: tuple[CellState, ...] = ("done", "pending", "lost", "impossible")


class AbortRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The campaign stops when at least `min_executed` have ended and the share of one kind of failure exceeds its limit."""

    min_executed: Annotated[int, msgspec.Meta(ge=1)] = 3
    failed_ratio: GroupShare = 0.2
    rejected_ratio: GroupShare = 0.2
    timed_out_ratio: GroupShare = 0.2


class GroupRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How it proceeds: group by group, each up to that many devices or that share of them, and at last all others.

    The next group begins when `success_ratio` of this one is done; a group that can no longer reach it aborts the campaign.
    """

    groups: tuple[GroupEnd, ...] = ()
    success_ratio: GroupShare = 0.8
    max_in_flight: DeviceCount | None = None
    abort: AbortRules = AbortRules()


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign: groups up to `wave` of `waves` (from 0) may measure; `reason` is why it is in its state.

    Executions changed up to the serial `judged_from` count for no abort rule: the campaign was resumed in spite of them.
    """

    campaign: str
    state: CampaignState
    reason: str | None
    wave: int
    waves: int
    rules: GroupRules
    made_ns: int
    judged_from: int
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CampaignCell:
    """One model in one mode on one device: the job that measures it, or why that is impossible."""

    model: str
    mode: str
    device: str
    wave: int
    job: str | None
    impossible: str | None


def insert(statements: Statements, campaign: Campaign, cells: list[CampaignCell]) -> None:
    """Write a new campaign with its cells, within the caller's transaction."""
    insert_rows(statements, "campaigns", [campaign])
    insert_rows(statements, "campaign_cells", cells, campaign=campaign.campaign)


def write(statements: Statements, campaign: Campaign) -> None:
    """Write the state of a campaign, within the caller's transaction."""
    statements.execute(
        "UPDATE campaigns SET state = ?, reason = ?, wave = ?, judged_from = ?, ended_ns = ? WHERE campaign = ?",
        (campaign.state, campaign.reason, campaign.wave, campaign.judged_from, campaign.ended_ns, campaign.campaign),
    )


def read(registry: Registry) -> list[Campaign]:
    """Return every campaign, the newest first."""
    return registry.rows(Campaign, "SELECT * FROM campaigns ORDER BY made_ns DESC")


def read_open(registry: Registry) -> list[Campaign]:
    """Return the campaigns that have not ended."""
    return registry.rows(Campaign, "SELECT * FROM campaigns WHERE ended_ns IS NULL ORDER BY made_ns")


def find(registry: Registry, campaign: str) -> Campaign:
    """Return the campaign of that name; raises ConfigError if there is none."""
    campaign_row = registry.row(Campaign, "SELECT * FROM campaigns WHERE campaign = ?", campaign)
    if campaign_row is None:
        raise ConfigError(f"no campaign is named {campaign!r}: `edgemeter fleet campaign list` lists them")
    return campaign_row


def count_by_group(registry: Registry, campaign: str, since: int = 0) -> dict[tuple[int, str], int]:
    """Return the number of executions of a campaign changed after the serial `since`, by (group, state)."""
    statement = "SELECT wave, state, COUNT(*) AS n FROM executions WHERE campaign = ? AND serial > ? GROUP BY wave, state"
    return {(row["wave"], row["state"]): row["n"] for row in registry.query(statement, campaign, since)}


def jobs_of(registry: Registry, campaign: str) -> list[str]:
    """Return the jobs of a campaign."""
    statement = "SELECT DISTINCT job FROM campaign_cells WHERE campaign = ? AND job IS NOT NULL ORDER BY job"
    return [row["job"] for row in registry.query(statement, campaign)]


def count_impossible(registry: Registry, campaign: str) -> int:
    """Return the number of cells that have no execution."""
    return int(registry.query("SELECT COUNT(*) AS n FROM campaign_cells WHERE campaign = ? AND job IS NULL", campaign)[0]["n"])


@dataclass(frozen=True, slots=True)
class CellCoverage:
    """A cell with its execution, None where it is impossible."""

    cell: CampaignCell
    execution: Execution | None

    @property
    def state(self) -> CellState:
        """Its state."""
        if self.execution is None:
            return "impossible"
        return "done" if self.execution.state == "done" else "lost" if self.execution.is_final else "pending"

    @property
    def why(self) -> str | None:
        """Why it is not done."""
        if self.execution is None:
            return self.cell.impossible
        return self.execution.reason or (None if self.state == "done" else self.execution.state.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Coverage:
    """A campaign with its cells."""

    campaign: Campaign
    cells: tuple[CellCoverage, ...]

    @property
    def counts(self) -> dict[CellState, int]:
        """The number of cells in each state."""
        counts = Counter(coverage.state for coverage in self.cells)
        return {state: counts[state] for state in CELL_STATES}

    @property
    def ratio(self) -> float | None:
        """The share of the possible cells that are done, None where none is possible."""
        possible = len(self.cells) - self.counts["impossible"]
        return self.counts["done"] / possible if possible else None


def read_coverage(registry: Registry, name: str) -> Coverage:
    """Return a campaign with its cells, by model, mode and device; raises ConfigError if there is none of that name."""
    campaign = find(registry, name)
    executions = {(execution.job, execution.device): execution for execution in executions_of_campaign(registry, name)}
    cells = registry.rows(CampaignCell, "SELECT * FROM campaign_cells WHERE campaign = ? ORDER BY model, mode, device", name)
    return Coverage(campaign, tuple(CellCoverage(cell, executions.get((cell.job or "", cell.device))) for cell in cells))
