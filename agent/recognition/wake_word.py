"""The streaming wake word model of MLPerf Tiny v1.3 by its shapes, with the features that it was trained on.

Source: mlcommons/tiny, `benchmark/training/streaming_wakeword/get_dataset.py` (features, classes) and `evaluate.py` (scale, threshold).
"""

from edgemeter.agent.contract.model_card import WAKE_WORD, AudioInput, Card, CardOutput, Features
from edgemeter.agent.runtimes import Loaded

# Input and output of a call, whose batch is 1 or open.
_SHAPES = [[(30, 1, 40)], [(3,)]]
_LABELS, _THRESHOLD = ("marvin", "silence", "unknown"), 0.95
_FEATURES = Features(
    window=1024,
    hop=512,
    fft=1024,
    bands=40,
    log="scaled-decibel",
    frames=30,
    samples_scale="magnitude",
    pre_emphasis=1 - 2**-5,
    taper="hamming",
    quantised="truncate",
)
DOUBT = (
    f"a second of sound as 30 frames of 40 bands, and the classes {', '.join(_LABELS)}, as MLPerf Tiny's streaming wake word has them; "
    f"{_LABELS[0]} is detected above {_THRESHOLD:g}; set input.features, output.labels and output.detected"
)


def wake_word_card(name: str, precision: str, loaded: Loaded) -> Card | None:
    """Return the card of a model with its inputs and outputs, None of another."""
    tensors = (loaded.inputs, loaded.outputs)
    if [[info.shape[1:] for info in infos] for infos in tensors] != _SHAPES or any(infos[0].shape[0] not in (1, None) for infos in tensors):
        return None
    return Card(
        name=name,
        task=WAKE_WORD,
        family="classifier",
        precision=precision,
        input=AudioInput(sample_rate_hz=16_000, features=_FEATURES),
        output=CardOutput(classes=len(_LABELS), labels=_LABELS, score_threshold=_THRESHOLD, detected=0),
    )
