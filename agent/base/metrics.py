"""Metrics of accuracy: what people call them, and which way is better. The one table; a metric of another package has its own name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: `title` in tables and charts, `words` where there is room for them (empty: the title)."""

    title: str
    words: str = ""
    better: Better = "higher"


# Metrics of a record's accuracy, and of its details.
METRICS: Mapping[str, Metric] = {
    "coco_ap": Metric("AP"),
    "coco_mask_ap": Metric("mask AP"),
    "coco_keypoint_ap": Metric("keypoint AP"),
    "ap": Metric("AP"),
    "ap50": Metric("AP50", "AP at IoU 0.50 (poses: OKS)"),
    "ap75": Metric("AP75", "AP at IoU 0.75 (poses: OKS)"),
    "ap_small": Metric("AP small", "AP of small objects"),
    "ap_medium": Metric("AP medium", "AP of medium objects"),
    "ap_large": Metric("AP large", "AP of large objects"),
    "ar_1": Metric("AR, 1 detection", "Recall, 1 detection an image"),
    "ar_10": Metric("AR, 10 detections", "Recall, 10 detections an image"),
    "ar_100": Metric("AR, 100 detections", "Recall, 100 detections an image"),
    "ar": Metric("AR", "Recall, 20 detections an image"),
    "ar50": Metric("AR50", "Recall at OKS 0.50"),
    "ar75": Metric("AR75", "Recall at OKS 0.75"),
    "ar_small": Metric("AR small", "Recall of small objects"),
    "ar_medium": Metric("AR medium", "Recall of medium objects"),
    "ar_large": Metric("AR large", "Recall of large objects"),
    "coco_ar_100": Metric("AR"),
    "dota_map50": Metric("mAP50 (DOTA)", "DOTA's mean AP at polygon IoU 0.50, 11 points"),
    "map50_area": Metric("mAP50, area", "Mean AP at polygon IoU 0.50, area below the curve"),
    "miou": Metric("mIoU", "Mean over classes of intersection over union"),
    "pixel_accuracy": Metric("pixel accuracy"),
    "class_accuracy": Metric("class accuracy", "Mean over classes of the share of their pixels that is right"),
    "abs_rel": Metric("AbsRel", "Mean absolute relative error", better="lower"),
    "delta1": Metric("delta < 1.25", "Share of pixels within a factor of 1.25"),
    "delta2": Metric("delta < 1.25^2"),
    "delta3": Metric("delta < 1.25^3"),
    "rmse_m": Metric("RMSE, m", better="lower"),
    "top1": Metric("top-1"),
    "top5": Metric("top-5"),
    "auc": Metric("AUC", "Area under the ROC curve"),
    "partial_auc": Metric("partial AUC", "Partial AUC, false positive rate up to 0.1"),
    "wer": Metric("WER", "Word error rate", better="lower"),
    "cer": Metric("CER", "Character error rate", better="lower"),
    "substitutions": Metric("substituted words", "Substituted words, of those spoken", better="lower"),
    "deletions": Metric("missing words", "Missing words, of those spoken", better="lower"),
    "insertions": Metric("added words", "Added words, of those spoken", better="lower"),
    "accuracy": Metric("accuracy", "Share of right classes"),
    "f1": Metric("F1", "F1 of class 1"),
    "matthews": Metric("Matthews", "Matthews correlation"),
    "squad_f1": Metric("SQuAD F1", "F1 of the answers' words"),
    "exact_match": Metric("exact match"),
    "f1_has_answer": Metric("F1, answerable", "F1 of questions with an answer"),
    "f1_no_answer": Metric("F1, unanswerable", "F1 of questions without an answer"),
}


def metric_name(metric: str) -> str:
    """Return how people call a metric of the record: `AP` for `coco_ap`."""
    return METRICS[metric].title if metric in METRICS else metric


def metric_words(metric: str) -> str:
    """Return a metric in words: `AP at IoU 0.50` for `ap50`."""
    return (METRICS[metric].words or METRICS[metric].title) if metric in METRICS else metric


def gain(value: float, better: Better) -> float:
    """Return the value, with its sign turned where lower is better: the larger of two gains is the better."""
    return value if better == "higher" else -value


def needed_value(reference: float, ratio: float, better: Better) -> float:
    """Return what a gate asks for: `ratio` of the reference; of an error the reference over `ratio`, which is as much larger."""
    return ratio * reference if better == "higher" else reference / ratio


def is_reached(value: float, needed: float, better: Better) -> bool:
    """Return whether the value is as good as what is needed."""
    return gain(value, better) >= gain(needed, better)
