"""A case that may be chosen: what became of each limit, and how certain that is."""

from dataclasses import dataclass

from edgemeter.agent.base.decision import Bounds
from edgemeter.collector.choose.certainty import Certainty, LimitFinding
from edgemeter.collector.compare.summary import CaseSummary


@dataclass(frozen=True, slots=True)
class ChoiceCandidate:
    """A case with a name that no other has, what became of each limit, and how certain all of it is.

    `deciding` is the limit that decides; `gate` is why its speed is not ranked, where no limit of accuracy, or of missed frames, was given;
    `objective` is its value of the figure that is chosen by, with its bounds.
    """

    case: CaseSummary
    name: str
    findings: tuple[LimitFinding, ...]
    state: Certainty
    deciding: LimitFinding | None
    objective: float | None
    bounds: Bounds | None
    gate: str = ""

    @property
    def reason(self) -> str:
        """The figure that decides, with its interval and its limit; why it is out where that is no limit."""
        return self.gate or (self.deciding.words if self.deciding else "no limit was given")
