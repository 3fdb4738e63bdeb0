"""Loading a model for a run: the runtime, what is known of the model, its photographs, and the inputs made ready before timing."""

from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent import runtimes, task
from edgemeter.agent.dataset import Dataset, open_folder
from edgemeter.agent.engine import noise
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card, recognise
from edgemeter.agent.runtimes import Array, Loaded

# Inputs are prepared before timing: so many, or as many as fit.
PREPARED_INPUTS = 64
PREPARED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Model:
    """The loaded model with what is known of it; `work` and `data` are None where there are no photographs."""

    runtime: runtimes.Runtime
    loaded: Loaded
    card: card.Card | None
    guesses: tuple[str, ...]
    data: Dataset | None
    work: task.Task | None

    def inputs_of(self, index: int, seed: int) -> list[Array]:
        """Return the model's inputs for one item of the data."""
        return self.work.prepare(index) if self.work else noise.inputs(self.loaded, seed)[index]


def load(case: Case, runtime: runtimes.Runtime) -> Model:
    """Return the model of a case, loaded, with its card and its data.

    Raises:
        EdgemeterError: the runtime or a library is missing, the file is broken, or model and data do not fit.
    """
    sha256 = case.sha256 or _hash_on_card(Path(case.model))
    options = runtimes.Options(threads=case.threads, backend=case.backend, extra=case.options, sha256=sha256)
    loaded = runtime.load(Path(case.model), options)
    if case.images is None:
        known, guesses = _card_if_known(Path(case.model), loaded)
        return Model(runtime, loaded, known, guesses, None, None)
    data = open_folder(Path(case.images), Path(case.annotations) if case.annotations else None, case.subset, case.seed)
    known, guesses = recognise.card_for(Path(case.model), loaded)
    return Model(runtime, loaded, known, tuple(guesses), data, task.create(known, loaded, data))


def _hash_on_card(model: Path) -> str | None:
    beside = card.beside(model)
    return card.read(beside).sha256 if beside.exists() else None


def _card_if_known(model: Path, loaded: Loaded) -> tuple[card.Card | None, tuple[str, ...]]:
    """Return the card of a model that is only timed: what it answers need not be known then."""
    try:
        known, guesses = recognise.card_for(model, loaded)
    except ConfigError:
        if card.beside(model).exists():
            raise
        return None, ()
    return known, tuple(guesses)


def prepare(model: Model, first: list[Array], seed: int) -> list[list[Array]]:
    """Return the inputs that are timed, one list of arrays an item; `first` is the first of them, made before."""
    if model.data is None:
        return noise.inputs(model.loaded, seed)
    fits = max(1, PREPARED_BYTES // max(1, sum(array.nbytes for array in first)))
    count = min(len(model.data.files), PREPARED_INPUTS, fits)
    return [first, *(model.inputs_of(index, seed) for index in range(1, count))]
