"""The metrics of accuracy and their names.

A metric of a plug-in has its own name, and may be an error (lower is better).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class AccuracyMetric:
    """A metric of accuracy (higher is better).

    `title` is for tables and charts, `words` for longer text (empty: the title).
    """

    title: str
    words: str = ""


# Metrics of a record's accuracy, and of its details.
METRICS: Mapping[str, AccuracyMetric] = {
    "coco_ap": AccuracyMetric("AP"),
    "coco_mask_ap": AccuracyMetric("mask AP"),
    "coco_keypoint_ap": AccuracyMetric("keypoint AP"),
    "ap": AccuracyMetric("AP"),
    "ap50": AccuracyMetric("AP50", "AP at IoU 0.50 (poses: OKS)"),
    "ap75": AccuracyMetric("AP75", "AP at IoU 0.75 (poses: OKS)"),
    "ap_small": AccuracyMetric("AP small", "AP of small objects"),
    "ap_medium": AccuracyMetric("AP medium", "AP of medium objects"),
    "ap_large": AccuracyMetric("AP large", "AP of large objects"),
    "ar_1": AccuracyMetric("AR, 1 detection", "Recall, 1 detection an image and class"),
    "ar_10": AccuracyMetric("AR, 10 detections", "Recall, 10 detections an image and class"),
    "ar_100": AccuracyMetric("AR, 100 detections", "Recall, 100 detections an image and class"),
    "ar": AccuracyMetric("AR", "Recall, 20 detections an image"),
    "ar50": AccuracyMetric("AR50", "Recall at OKS 0.50"),
    "ar75": AccuracyMetric("AR75", "Recall at OKS 0.75"),
    "ar_small": AccuracyMetric("AR small", "Recall of small objects"),
    "ar_medium": AccuracyMetric("AR medium", "Recall of medium objects"),
    "ar_large": AccuracyMetric("AR large", "Recall of large objects"),
    "miou": AccuracyMetric("mIoU", "Mean over classes of intersection over union"),
    "pixel_accuracy": AccuracyMetric("pixel accuracy"),
    "class_accuracy": AccuracyMetric(
        "class accuracy", "Mean over classes of the share of their pixels that is right"
    ),
    "top1": AccuracyMetric("top-1"),
    "top5": AccuracyMetric("top-5"),
}


def metric_name(metric: str) -> str:
    """Return the short name of a metric of the record: `AP` for `coco_ap`."""
    return METRICS[metric].title if metric in METRICS else metric


def metric_words(metric: str) -> str:
    """Return the long name of a metric: `AP at IoU 0.50` for `ap50`."""
    return (METRICS[metric].words or METRICS[metric].title) if metric in METRICS else metric


def gain(value: float, better: Better) -> float:
    """Return the value, negated if lower is better, so that the larger gain is the better one."""
    return value if better == "higher" else -value


def needed_value(reference: float, ratio: float, better: Better) -> float:
    """Return the value that a gate requires.

    It is `ratio` of the reference; for an error it is the reference divided by `ratio`.
    """
    return ratio * reference if better == "higher" else reference / ratio


def is_reached(value: float, threshold: float, better: Better) -> bool:
    return gain(value, better) >= gain(threshold, better)
