"""Request and outcome of a conversion, the card of the file, and rows for the outcome.

The rows are for people and for programs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.metrics import gain, metric_name
from edgemeter.agent.contract.model_card import Card, made_by_guessing
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.models.catalogue.shipped_models import card_text
from edgemeter.models.convert import formats
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.parity import Parity
from edgemeter.models.convert.photo_split import PhotoSplit
from edgemeter.models.convert.source import ModelSource

Values = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """A requested conversion, with the steps to each format."""

    source: ModelSource
    routes: Sequence[Sequence[ModelFormat]]
    out: Path
    photos: PhotoSplit


@dataclass(frozen=True, slots=True)
class Conversion:
    """One file, written unless it is ruined.

    `stand_in` names the file that was compared instead if this machine cannot run it.
    """

    format: ModelFormat
    path: Path
    facts: ConversionFacts
    parity: Parity
    stand_in: str | None
    sha256: str
    size_bytes: int

    @property
    def is_ruined(self) -> bool:
        """Whether it was not written because of its outputs."""
        return self.parity.verdict.state == "ruined"


def input_card(about: Card, form: ModelFormat, source_form: str) -> Card:
    """Return the source's card for a file of this format.

    It has the same preparation, but its own precision and layout.
    """
    is_channels_last = form.runtime in ("litert", "edgetpu") and source_form == formats.TORCH
    prepared = (
        msgspec.structs.replace(about.image, layout="NHWC") if is_channels_last else about.input
    )
    return msgspec.structs.replace(
        about, precision=form.precision, input=prepared, sha256=None, made={}, accuracy={}
    )


def card_of(conversion: Conversion, request: ConversionRequest) -> str:
    """Return the text of the file's card; empty for an unknown model."""
    source, after = request.source, conversion.parity.after
    if source.about is None:
        return ""
    accuracy = (
        {} if after is None or conversion.stand_in else figures(after, conversion.parity.runtime)
    )
    about = input_card(source.about, conversion.format, source.form)
    return card_text(
        msgspec.structs.replace(
            about, sha256=conversion.sha256, made=made_facts(conversion, request), accuracy=accuracy
        )
    )


def figures(accuracy: Accuracy, runtime: str) -> Values:
    """Return an accuracy as a card's table `accuracy`."""
    parts = {
        "value": accuracy.value,
        **{name: accuracy.detail.get(name) for name in ("ap50", "ap75", "top5")},
    }
    return {
        "metric": accuracy.metric,
        **{name: round(value, 4) for name, value in parts.items() if value is not None},
        "images": accuracy.images,
        "dataset_sha256": accuracy.dataset_sha256,
        "runtime": runtime,
    }


def made_facts(conversion: Conversion, request: ConversionRequest) -> Values:
    """Return a card's table `made`: the source, the tools, and the comparison with the source."""
    source, parity, compared = request.source, conversion.parity, request.photos.compared
    values: Values = {
        "by": "edgemeter models convert",
        "format": conversion.format.name,
        "from": source.path.name,
    }
    values |= {"from_sha256": source.sha256, **conversion.facts}
    values |= made_by_guessing(source.guesses)
    values |= {"verdict": parity.verdict.state, "reason": parity.verdict.reason}
    values |= {"compared": conversion.stand_in} if conversion.stand_in else {}
    if parity.before is not None and parity.after is not None:
        values |= {
            "metric": parity.before.metric,
            "before": round(parity.before.value, 4),
            "after": round(parity.after.value, 4),
        }
    same, snr_db = parity.agreement.same_answer_ratio, parity.agreement.snr_db
    values |= {} if same is None else {"same_answer_ratio": round(same, 4)}
    values |= {} if snr_db is None or not math.isfinite(snr_db) else {"snr_db": round(snr_db, 1)}
    if compared is None or source.about is None:
        return {**values, "compared_on": "noise", "compared_inputs": parity.agreement.inputs}
    return {
        **values,
        "compared_on": compared.name,
        "compared_images": len(compared.items),
        "compared_sha256": compared.sha256,
    }


def report_row(conversion: Conversion, request: ConversionRequest) -> dict[str, Any]:
    """Return the conversion as a JSON row; further facts are in `made`, as on its card."""
    parity = conversion.parity
    return {
        "format": conversion.format.name,
        "file": None if conversion.is_ruined else str(conversion.path),
        "sha256": conversion.sha256,
        "size_bytes": conversion.size_bytes,
        "source_size_bytes": request.source.path.stat().st_size,
        "verdict": parity.verdict.state,
        "reason": parity.verdict.reason,
        "accuracy_before": parity.before.value if parity.before else None,
        "accuracy_after": parity.after.value if parity.after else None,
        "made": made_facts(conversion, request),
    }


def report_cells(conversion: Conversion) -> dict[str, str]:
    """Return the cells of a table row by heading, without unknown ones."""
    parity = conversion.parity
    before, after = parity.before, parity.after
    same, snr_db = parity.agreement.same_answer_ratio, parity.agreement.snr_db
    cells = {"file": conversion.path.name, "kB": f"{conversion.size_bytes / 1000:.0f}"}
    if before is not None and after is not None:
        lost = gain(before.value, before.better) - gain(after.value, after.better)
        cells |= {metric_name(after.metric): f"{after.value:.4f}", "lost": f"{lost:+.4f}"}
    cells |= {} if same is None else {"same": f"{same:.1%}"}
    cells |= (
        {} if snr_db is None else {"SNR dB": "identical" if snr_db == math.inf else f"{snr_db:.1f}"}
    )
    return {
        **cells,
        "verdict": "RUINED, not written" if conversion.is_ruined else parity.verdict.state,
    }


def remedy(conversion: Conversion) -> str:
    if conversion.format.precision == "fp32":
        return (
            "the converter writes this model incorrectly: try another version of the converter, "
            "or export the model in another way"
        )
    if conversion.format.precision == "fp16":
        return "values beyond 65,504 do not fit in fp16: use fp32"
    return "calibrate on more images like those that the model will see, or use fp16"
