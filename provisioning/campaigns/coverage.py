"""Coverage of a campaign: which cells of models x devices x modes are done, are pending, or are impossible, with the reason."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgemeter.provisioning.campaigns import campaigns
from edgemeter.provisioning.campaigns.campaigns import Campaign, Cell
from edgemeter.provisioning.jobs import executions
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.registry.registry import Registry

# pending: may still become done; lost: failed, rejected, timed out or cancelled.
Standing: TypeAlias = Literal["done", "pending", "lost", "impossible"]


@dataclass(frozen=True, slots=True)
class Covered:
    """A cell, how it stands and why."""

    cell: Cell
    standing: Standing
    execution: Execution | None

    @property
    def why(self) -> str | None:
        """Why it is not done."""
        if self.execution is None:
            return self.cell.impossible
        return self.execution.reason or (None if self.standing == "done" else self.execution.state.replace("_", " "))


@dataclass(frozen=True, slots=True)
class Coverage:
    """A campaign with its cells."""

    campaign: Campaign
    cells: tuple[Covered, ...]

    @property
    def counts(self) -> dict[Standing, int]:
        """How many cells stand where."""
        found = Counter(one.standing for one in self.cells)
        return {"done": found["done"], "pending": found["pending"], "lost": found["lost"], "impossible": found["impossible"]}

    @property
    def ratio(self) -> float | None:
        """The share of the possible cells that are done, None where none is possible."""
        possible = len(self.cells) - self.counts["impossible"]
        return self.counts["done"] / possible if possible else None


def read(registry: Registry, name: str) -> Coverage:
    """Return how the cells of a campaign stand.

    Raises:
        ConfigError: there is none of that name.
    """
    campaign = campaigns.find(registry, name)
    held = {(one.job, one.device): one for one in executions.of_campaign(registry, name)}
    cells = [_covered(cell, None if cell.job is None else held.get((cell.job, cell.device))) for cell in campaigns.cells(registry, name)]
    return Coverage(campaign, tuple(cells))


def by_row(cells: Sequence[Covered]) -> dict[tuple[str, str], Counter[Standing]]:
    """Return how many cells stand where for each (model, mode)."""
    rows: dict[tuple[str, str], Counter[Standing]] = {}
    for one in cells:
        rows.setdefault((one.cell.model, one.cell.mode), Counter())[one.standing] += 1
    return rows


def _covered(cell: Cell, execution: Execution | None) -> Covered:
    if execution is None:
        return Covered(cell, "impossible", None)
    if execution.state == "done":
        return Covered(cell, "done", execution)
    return Covered(cell, "lost" if execution.is_final else "pending", execution)
