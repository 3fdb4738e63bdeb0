"""Parts of the record: the accuracy of a run's outputs, and whether these are plausible, repeatable and those of other kernels."""

from typing import Literal

from edgemeter.agent.base.metrics import Better
from edgemeter.agent.base.types import Count, Ratio, Sha256
from edgemeter.agent.contract.record_conditions import RecordPart

# The share of a reference's accuracy that a model must keep for its speed to count, unless another is given; see `engine.verdict.gate`.
GATE_RATIO = 0.9


class PartAccuracy(RecordPart, frozen=True, kw_only=True):
    """Accuracy over a part of the data: a class, the images with a number of objects, a group."""

    name: str  # Name of the part.
    value: float | None  # Accuracy; null if there is nothing to find, or too little.
    images: Count  # Images in the part.
    objects: Count | None = None  # Objects in the part; null if predictions are not objects.
    low: float | None = None  # Lower 95% bound.
    high: float | None = None  # Upper 95% bound.


class GroupGap(RecordPart, frozen=True, kw_only=True):
    """The largest difference between two groups; its bounds (95%) hold for all pairs together, because the largest was picked."""

    best: str  # Group with the highest accuracy.
    worst: str  # Group with the lowest accuracy.
    value: float  # Difference of their accuracies.
    low: float | None  # Lower bound of the difference; null if the bounds of one of the two groups are not known.
    high: float | None  # Upper bound of the difference.
    reason: str | None = None  # Why there are no bounds.


class Accuracy(RecordPart, frozen=True, kw_only=True):
    """Accuracy of the outputs of this run's model."""

    metric: str  # Metric, e.g. coco_ap or top1.
    value: float  # Value of the metric, 0..1; an error may exceed 1.
    images: Count  # Images it was computed over.
    dataset_sha256: Sha256  # SHA-256 of the data set.
    detail: dict[str, float | None] = {}  # Further metrics by name, e.g. ap50; null if there is nothing to find.
    low: float | None = None  # Lower 95% bound of `value`; null if unknown.
    high: float | None = None  # Upper 95% bound of `value`; null if unknown.
    interval: str | None = None  # How the bounds were computed.
    interval_reason: str | None = None  # Why there are no bounds; null if there are, or nothing is known of it.
    without_parts: tuple[float, ...] = ()
    """Value without one of 20 parts of the images after the other; the parts are the same for every model.
    Empty if not computed."""
    per_class: tuple[PartAccuracy, ...] = ()  # Accuracy by class.
    by_objects: tuple[PartAccuracy, ...] = ()  # Accuracy by number of objects in the image.
    group_metric: str | None = None  # Metric of `groups` and `group_gap`; it may differ from `metric`.
    groups: tuple[PartAccuracy, ...] = ()  # Accuracy by group.
    group_gap: GroupGap | None = None  # Largest difference between two groups.
    warnings: tuple[str, ...] = ()  # Oddities of the ground truth, counted, and how they were treated.
    better: Better = "higher"  # Whether a higher or a lower `value` is the better one.
    normalisation: str | None = None
    """Rule by which answers in words and the right ones were made alike before they were compared; null for a metric without."""

    @property
    def over(self) -> str:
        """Return what the bounds take as independent, e.g. `images taken as independent`; empty if it is not recorded."""
        return (self.interval or "").partition("; ")[2]


class OutputCheck(RecordPart, frozen=True, kw_only=True):
    """Outputs kept during the timed part against outputs for the same inputs afterwards (the intent of MLPerf's TEST01)."""

    compared: Count  # Outputs compared.
    identical: Count  # Outputs that are equal bit by bit.
    worst_ratio: float | None  # Largest difference of a value, relative to the largest value of its tensor.
    differing: Count = 0  # Outputs that differ in meaning: other values, another shape, NaN on one side only, or other text.
    varying: Count = 0  # Prompts to which a server that was asked twice, alone, gave two answers.
    changed: Count = 0  # Answers that a server repeats alone, but gave otherwise while timed, although nobody was beside them.
    parting: Count = 0  # Answers that a server gave otherwise beside others, or with other tokens from its cache: it sums in another order.
    common_ratio: Ratio | None = None
    """Smallest share of an answer, from its beginning, that is the same in its repetition, where one differs; null where none does."""
    reason: str | None = None  # Why no generated text was compared; null otherwise.


class Answers(RecordPart, frozen=True, kw_only=True):
    """Plausibility of the outputs of the accuracy pass, regardless of whether they are right; null where no detector was run."""

    inputs: Count  # Inputs of the pass.
    alike: Count  # Inputs with the first one's output, bit by bit, although they differ from it.
    not_finite: Count  # Inputs whose output holds NaN or infinity.
    objects: Count | None = None  # Objects in the ground truth.
    found: Count | None = None  # Boxes above the model card's threshold.
    highest_score: float | None = None  # Highest score of a box.
    distinct_scores: Count | None = None  # Number of different scores.


class Agreement(RecordPart, frozen=True, kw_only=True):
    """Outputs of timed queries against those of other kernels for the same model and inputs; values are dequantised."""

    reference: str  # The kernels compared with.
    inputs: Count  # Inputs compared.
    largest_difference: float | None  # Largest difference of two values; null if no tensors could be compared.
    largest_difference_ratio: float | None  # The same, relative to the largest value of its tensor.
    lowest_cosine: float | None  # Lowest cosine similarity of two tensors; null if no tensors could be compared.
    same_answer_ratio: Ratio | None  # Share of equal predictions: of boxes that both have, or of inputs with the same best class.


class AccuracyGate(RecordPart, frozen=True, kw_only=True):
    """The accuracy that the run has to reach for its speed to count."""

    metric: str  # Metric compared.
    value: float  # Value of this run.
    reference_value: float  # Value of the reference model.
    ratio: Ratio  # Share of the reference value that is required.
    needed_value: float  # `ratio` times `reference_value`; `reference_value` over `ratio` where lower is better.
    source: Literal["suite", "card"]  # Where the reference value comes from: the suite or the model card.
    passed: bool  # Whether the value is good enough.
