"""The subject of a run: a file by a runtime, a served model, a function, a language model; one interface for all that times it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_accuracy import Accuracy, OutputCheck
from edgemeter.agent.contract.record_conditions import DatasetInfo, Model, RuntimeInfo, Tensor
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine import job
from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan

Emit = Callable[[job.Event], None]
# The user of a query that comes by a schedule, beside others, on a connection of its own.
ARRIVAL = -1


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a subject adds to the record when its queries were timed: fields of `MeasuredRun` by their names, and samples.

    `queries` are those that count, `series` further raw samples, `preprocess_ns` and `postprocess_ns` durations of the pass over the data.
    """

    queries: TimedQueries
    model: Model
    runtime: RuntimeInfo
    precision: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[job.OutputTensor, ...]
    dataset: DatasetInfo
    output_check: OutputCheck
    batch: int = 1
    accuracy: Accuracy | None = None
    reasons: dict[str, str] = {}
    answers: job.Answers | None = None
    predictions: msgspec.Raw = job.NO_PREDICTIONS
    generation: Generation | None = None
    guesses: tuple[str, ...] = ()
    preprocess_ns: Times = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    postprocess_ns: Times = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    series: tuple[Series, ...] = ()


class Subject(ABC):
    """The thing that is measured. Queries have numbers: timed ones from 0, those before them from -1 down.

    The calls come in the order load, prepare, (bind, the bare call, finish)*, ready, (bind, the bare call, finish)*, results, close. The
    clock is read just before and after the bare call.
    """

    # Whether it answers several queries at once.
    is_concurrent = False
    # Whether a query has a moment for each token.
    has_tokens = False
    # Samples of a query.
    samples = 1
    # Import, load and first query, where loading made that (ns); None: there is no such part, or it is still to be made.
    import_ns: int | None = None
    load_ns: int | None = None
    first_ns: int | None = None
    # Whether the first query compiles.
    compiles_at_call = False
    # The bytes that are kept of timed answers; None where the growth of this process is not the subject's.
    kept_bytes: int | None = None
    asked_before = 0
    # The process whose memory is the run's; None: this one.
    process: int | None = None

    @abstractmethod
    def load(self) -> None:
        """Load it, so that `bind` gives a first query.

        Raises:
            EdgemeterError: it cannot be loaded.
        """

    def prepare(self) -> None:  # noqa: B027 - some have nothing to prepare
        """Prepare the inputs that are timed, once the first query was asked."""

    def plan(self, work: job.RunJob) -> TimingPlan:
        """Return what is to be timed, before it is known how long a query takes."""
        return scenario.plan_of(work.case, work.seed, self.samples)

    def ready(self, plan: TimingPlan) -> None:  # noqa: B027 - some ask the same each time
        """Draw the inputs of this plan, and make what can be made of its queries before they are timed."""

    @abstractmethod
    def bind(self, number: int, user: int | None = None) -> Callable[[], Any]:
        """Return the bare call of a query: alone, of a `user` (0, 1, ...), or of an `ARRIVAL`.

        Those of users and arrivals run in threads of their own.

        Raises:
            AnswerError: (the call too) the query is not answered.
        """

    def finish(self, number: int, result: Any, end_ns: int) -> int:
        """Take the result of a call; return when the query ended, of text with its last token. Raises AnswerError if it is no answer."""
        del number, result
        return end_ns

    def paces_ns(self, queries: Sequence[tuple[int, int, int]]) -> tuple[float, ...]:
        """Return the times that have to settle in the warm-up, means of these queries: number, start and end."""
        return (sum(end_ns - start_ns for _, start_ns, end_ns in queries) / len(queries),)

    @abstractmethod
    def results(self, timed: TimedQueries, emit: Emit) -> Results:
        """Return what the record holds besides the times; some queries are repeated for that, and the data gone through."""

    def close(self) -> None:  # noqa: B027 - some belong to the caller
        """Let it go; may come twice, and after a load that failed."""

    def reserve(self, count: int = 1) -> int:
        """Return the number of the next query before the timed ones, of so many that count down from it."""
        first = -1 - self.asked_before
        self.asked_before += count
        return first
