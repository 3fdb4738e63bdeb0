"""Parts of the record: the accuracy of a run's outputs, and whether these are repeatable."""

from edgemeter.agent.base.metrics import Better, is_reached
from edgemeter.agent.base.types import Count, QuantityOrZero, Sha256, SignedQuantity
from edgemeter.agent.contract.record_conditions import RecordPart

# The share of a reference's accuracy that a model must keep for its speed to count; see
# `engine.predictions`.
GATE_RATIO = 0.9


class Accuracy(RecordPart, frozen=True, kw_only=True):
    """Accuracy of the outputs of this run's model."""

    metric: str  # Metric, e.g. coco_ap or top1.
    value: QuantityOrZero  # Value of the metric, 0..1; an error may exceed 1.
    images: Count  # Number of images.
    dataset_sha256: Sha256  # SHA-256 of the data set.
    detail: dict[str, SignedQuantity | None] = {}
    """Further metrics by name, e.g. ap50; null if there is nothing to find."""
    low: QuantityOrZero | None = None  # Lower 95% bound of `value`; null if unknown.
    high: QuantityOrZero | None = None  # Upper 95% bound of `value`; null if unknown.
    interval_reason: str | None = None
    """Why there are no bounds; null if there are, or if the reason is unknown."""
    without_parts: tuple[QuantityOrZero, ...] = ()
    """Values without one of 20 parts of the images; the parts are the same for every model. Empty
    if not computed."""
    per_class: dict[str, SignedQuantity | None] = {}
    """Accuracy by class; null if there is nothing to find."""
    per_class_objects: dict[str, Count] = {}
    """Objects of each class; empty if predictions are not objects."""
    warnings: tuple[str, ...] = ()
    """Irregularities of the ground truth, their number, and how they were treated."""
    better: Better = "higher"  # Whether a higher or a lower `value` is better.
    needed_value: QuantityOrZero | None = None
    """Value that the accuracy gate requires; null if the model card has no reference for this
    data."""
    normalisation: str | None = None
    """Rule that normalised answers in words before they were compared; null for other metrics."""

    @property
    def passes_gate(self) -> bool | None:
        """Return whether the value is as good as the gate asks for.

        None if no reference is known.
        """
        return (
            None
            if self.needed_value is None
            else is_reached(self.value, self.needed_value, self.better)
        )


class OutputCheck(RecordPart, frozen=True, kw_only=True):
    """Outputs kept during the timed part against outputs for the same inputs afterwards.

    This is the intent of MLPerf's TEST01.
    """

    compared: Count  # Outputs compared.
    differing: Count = 0
    """Outputs that differ: other values, another shape, NaN on one side only, or other text."""
    varying: Count = 0  # Answers that differed when the server was asked again without other load.
