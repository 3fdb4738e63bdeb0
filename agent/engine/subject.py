"""The subject of a run, behind one interface.

It is a model file, a served model, a function or a language model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.contract.model_card import Guess
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_accuracy import Accuracy, OutputCheck
from edgemeter.agent.contract.record_conditions import DatasetInfo, Model, RuntimeInfo, Tensor
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine import job
from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan

Emit = Callable[[job.Event], None]
# The user of a query that arrives by a schedule, at the same time as others, on a connection of its
# own.
ARRIVAL = -1


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a subject adds to the record after timing.

    They are fields of `MeasuredRun` by their names, and raw samples.

    `queries` are those that count; `preprocess_ns` and `postprocess_ns` are durations in the pass
    over the data.
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
    guesses: tuple[Guess, ...] = ()
    preprocess_ns: Times = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    postprocess_ns: Times = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    series: tuple[Series, ...] = ()


class Subject(ABC):
    """The thing that is measured.

    Timed queries have the numbers 0, 1, ..., warm-up queries -1, -2, ...

    The calls come in the order load, prepare, (bind, the bare call, finish)*, ready, (bind, the
    bare call, finish)*, results, close. The clock is read just before and after the bare call.
    """

    # Whether it answers several queries at once.
    is_concurrent = False
    # Whether each token of an answer has a time.
    has_tokens = False
    # The number of samples in a query.
    samples = 1
    # The times of import, load and the first query, where `load` did them.
    import_ns: int | None = None
    load_ns: int | None = None
    first_ns: int | None = None
    # Whether the first query compiles.
    compiles_at_call = False
    # The size of the answers that are kept; None if the memory growth of this process is not the
    # subject's.
    kept_bytes: int | None = None
    # The process whose memory is measured; None: this one.
    process: int | None = None
    warm_up_queries = 0

    @abstractmethod
    def load(self) -> None:
        """Load the subject, so that `bind` can return the first query.

        Raises:
            EdgemeterError: it cannot be loaded.
        """

    def prepare(self) -> None:  # noqa: B027 - some have nothing to prepare
        """Prepare the inputs of timed queries, after the first query."""

    def plan(self, work: job.RunJob) -> TimingPlan:
        """Return the plan of the timed part, before the duration of a query is known."""
        return scenario.plan_of(work.case, work.seed, self.samples)

    def ready(self, plan: TimingPlan) -> None:  # noqa: B027 - some have the same query each time
        """Draw the inputs of this plan, and prepare its queries as far as possible."""

    @abstractmethod
    def bind(self, number: int, user: int | None = None) -> Callable[[], Any]:
        """Return the bare call of a query: alone, of a `user` (0, 1, ...), or of an `ARRIVAL`.

        Calls of users and arrivals run in threads of their own.

        Raises:
            AnswerError: (also by the call) the query is not answered.
        """

    def finish(self, number: int, result: Any, end_ns: int) -> int:
        """Take the result of a call, and return the end of the query.

        It is `end_ns`, or the time of the last token.

        Raises:
            AnswerError: the result is no answer.
        """
        del number, result
        return end_ns

    def paces_ns(self, queries: Sequence[tuple[int, int, int]]) -> tuple[float, ...]:
        """Return the durations that must settle in the warm-up.

        They are means over these queries (number, start, end).
        """
        return (sum(end_ns - start_ns for _, start_ns, end_ns in queries) / len(queries),)

    @abstractmethod
    def results(self, timed: TimedQueries, emit: Emit) -> Results:
        """Return the facts for the record.

        For them some queries are repeated, and the data set is run.
        """

    def close(self) -> None:  # noqa: B027 - some belong to the caller
        """Release the subject; may be called twice, and after a load that failed."""

    def warm_up_number(self) -> int:
        """Return the number of the next warm-up query."""
        self.warm_up_queries += 1
        return -self.warm_up_queries
