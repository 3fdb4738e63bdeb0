"""The accuracy gate: how much of a reference's accuracy a model must keep for its speed to count.

The default, `records.GATE_RATIO`, is 0.9. MLPerf Inference asks for 99 % or 99.9 % of the fp32 model and MLPerf Mobile for 93-98 %, on full
validation sets and of models tuned to pass. What people deploy is quantised by an exporter and scored on some tens or hundreds of
photographs: yolov8n as Ultralytics exports it to int8 keeps 0.91 of its fp32 AP on 80 photographs, and a sample of that size moves an AP
by several per cent by itself. Below 0.9 it is another model; whoever needs MLPerf's strictness writes `gate = 0.99` in the suite.
"""

from typing import Literal

from edgemeter.agent.recognition.card import Card
from edgemeter.agent.records import Accuracy, AccuracyGate


def gate(accuracy: Accuracy | None, known: Card | None, reference_accuracy: float | None, ratio: float) -> AccuracyGate | None:
    """Return what the run had to reach and whether it did; None without an accuracy or a reference value for it.

    The suite's `reference_accuracy` comes before the card's, which counts for the same metric, and the same data where it names any.
    """
    if accuracy is None:
        return None
    source: Literal["suite", "card"] = "suite"
    reference = reference_accuracy
    if reference is None:
        source, reference = "card", _of_card(accuracy, known)
    if reference is None:
        return None
    needed = ratio * reference
    return AccuracyGate(
        metric=accuracy.metric,
        value=accuracy.value,
        reference_value=reference,
        ratio=ratio,
        needed_value=needed,
        source=source,
        passed=accuracy.value >= needed,
    )


def _of_card(accuracy: Accuracy, known: Card | None) -> float | None:
    """Return the accuracy that the card promises for this data, None where it says nothing of it."""
    said = known.accuracy if known else {}
    value = said.get("value")
    if not isinstance(value, (int, float)) or said.get("metric", accuracy.metric) != accuracy.metric:
        return None
    is_same_data = said.get("dataset_sha256", accuracy.dataset_sha256) == accuracy.dataset_sha256
    return float(value) if is_same_data and said.get("images", accuracy.images) == accuracy.images else None
