"""Chooses how an ONNX file becomes int8: the first recipe that does not ruin it on the photographs to choose by, else the best there.

Those it is judged on are others: of several recipes the one that is best on some photographs is not as good on others.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.metrics import gain
from edgemeter.agent.base.progress import Tell
from edgemeter.models.convert.converter_output import converter_errors, quiet
from edgemeter.models.convert.format_writer import FormatWriter
from edgemeter.models.convert.formats import ConversionFacts, ModelFormat
from edgemeter.models.convert.onnx_quantise import STRETCHES, Int8Recipe, OnnxInt8
from edgemeter.models.convert.parity import Parity


@dataclass(frozen=True, slots=True)
class RecipeAttempt:
    """A file that was written by a recipe: where, the facts for its card, and how it compares on the photographs to choose by."""

    recipe: Int8Recipe
    path: Path
    facts: ConversionFacts
    result: Parity

    @property
    def score(self) -> tuple[float, ...]:
        """How good the file is, by what its verdict goes by: usable outputs, accuracy, common predictions, noise."""
        after, agreement = self.result.after, self.result.agreement
        snr_db = agreement.snr_db
        usable = not agreement.not_finite and agreement.variation != "collapsed"
        accuracy = gain(after.value, after.better) if after else 0.0
        return (float(usable), accuracy, agreement.same_answer_ratio or 0.0, -math.inf if snr_db is None else snr_db)


def choose_recipe(
    writer: FormatWriter, step: ModelFormat, base: Path, target: Path, compare: Callable[[Path], Parity], report: Tell
) -> ConversionFacts:
    """Write `target` in int8 from the file `base`; return the facts for its card, `tried` among them where the first recipe failed.

    `compare` compares a file on the photographs to choose by.

    Raises:
        EdgemeterError: it cannot be written by the first recipe.
    """
    attempts: list[RecipeAttempt] = []
    tried: list[str] = []
    with writer.onnx_int8(step, base) as quantiser:
        for recipe in _recipes(quantiser, attempts):
            report(f"choosing the recipe of {step.name}: {recipe.in_words}", 0, 1)
            path = target.with_name(f"{len(tried)}-{target.name}")
            try:
                attempt = RecipeAttempt(recipe, path, writer.write_onnx_int8(step, quantiser, path, recipe), compare(path))
            except EdgemeterError as error:
                if not attempts:
                    raise
                tried.append(f"{recipe.in_words}: {error}")
                continue
            attempts.append(attempt)
            tried.append(f"{recipe.in_words}: {attempt.result.verdict.reason}")
            if attempt.result.verdict.state != "ruined":
                break
    best = max(attempts, key=lambda attempt: attempt.score)
    best.path.replace(target)
    return {**best.facts, **({"tried": "; ".join(tried)} if len(tried) > 1 else {})}


def _recipes(quantiser: OnnxInt8, attempts: Sequence[RecipeAttempt]) -> Iterator[Int8Recipe]:
    """Yield what is tried, one after the other; `attempts` are those so far.

    The sensitivity pass comes last and blames with the best ranges; at most half of the network is left in float.
    """
    yield Int8Recipe()
    yield Int8Recipe("percentile")
    yield Int8Recipe("entropy")
    ranges = max(attempts, key=lambda attempt: attempt.score).recipe.ranges
    with quiet(), converter_errors("looking for what int8 harms most", "leave this format out"):
        stretches = quantiser.blamed(ranges)
    for count in range(1, min(len(stretches), STRETCHES // 2) + 1):
        yield Int8Recipe(ranges, tuple(name for stretch in stretches[:count] for name in stretch))
