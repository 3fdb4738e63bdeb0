"""A model that a runtime runs: a file in this process, or a model behind a server."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.contract.case_settings import is_video
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.engine import job, loading
from edgemeter.agent.engine.predictions import check_results, evaluate
from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.scenarios.scenario import join_batch, joined_batches, query_shape
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import until_answered
from edgemeter.agent.engine.subject import ARRIVAL, Emit, Results, Subject
from edgemeter.agent.runtimes import Answered, Array, noise

KEPT_OUTPUTS = 8


class ModelSubject(Subject):
    """The loaded model with its inputs, one list of arrays a call.

    `kept` are the outputs of a few calls, by input.
    """

    def __init__(self, work: job.RunJob) -> None:
        self.work, self.case = work, work.case
        self.runtime = runtimes.create(work.case.runtime)
        self.inputs: Sequence[Sequence[Array]] = ()
        self.kept: dict[int, list[Array]] = {}
        self._order: Sequence[int] = ()
        self._kept_every = self._finished = 0
        self._arrivals: dict[int, Callable[[], Any]] = {}
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the model, and prepare the first item; see `Subject.load`."""
        self.model = model = loading.load_model(self.case, self.runtime)
        check_results(self.case, model)
        self.samples, self._joined = query_shape(self.case, model.loaded.inputs)
        self._item = model.calls_of(0, self.case.seed)
        self._first = join_batch([self._item[0]] * self._joined)
        self.is_concurrent = isinstance(self.runtime, runtimes.ConcurrentRuntime)
        self.import_ns, self.load_ns = model.loaded.import_ns, model.loaded.load_ns
        self.compiles_at_call = model.loaded.compiles_at_call
        declared = tuple(tuple(size or 1 for size in info.shape) for info in model.loaded.inputs)
        # A first query of the runtime counts only if its inputs had the shapes of this run.
        self.first_ns = (
            model.loaded.first_ns if loading.shapes_of(self._first) == declared else None
        )
        self._take([self._first])

    def prepare(self) -> None:
        """Prepare the inputs, and call code once for each shape.

        So it compiles before timing.
        """
        calls, is_by_item = loading.prepare_calls(self.model, self._item, self.case.seed)
        self._take(joined_batches(calls, self._joined, loading.PREPARED_BYTES, self.case.seed))
        self.is_by_item = is_by_item and self._joined == 1
        if self.case.runtime == PYTHON:
            for inputs in {loading.shapes_of(inputs): inputs for inputs in self.inputs}.values():
                self.runtime.bind(inputs)()

    def _take(self, inputs: Sequence[Sequence[Array]]) -> None:
        self.inputs, self._order = inputs, range(len(inputs))

    def plan(self, work: job.RunJob) -> TimingPlan:
        """Return the plan.

        Frames of a video come in their order, at the rate of the case or the video.
        """
        plan, data = super().plan(work), self.model.data
        rate_per_s = (
            data.rate_per_s if work.case.scenario == "steady" and data is not None else None
        )
        return replace(
            plan, rate_per_s=plan.rate_per_s or rate_per_s, in_order=is_video(work.case.data or "")
        )

    def ready(self, plan: TimingPlan) -> None:
        """Draw the inputs, and prepare the requests of arrivals, outside their time."""
        self._order = plan.drawn(len(self.inputs))
        self.kept, self._finished, self.kept_bytes = {}, 0, 0
        self._kept_every = max(1, plan.likely_queries() // KEPT_OUTPUTS)
        if self.is_concurrent and self.case.scenario == "poisson":
            for number in range(len(poisson.schedule_ns(plan))):
                self.bind(number, ARRIVAL)

    def bind(self, number: int, user: int | None = None) -> Callable[[], Any]:
        """Return the runtime's bare call.

        Arrivals with the same input share one, so that those of a long schedule fit in memory.
        """
        item = self._order[number % len(self._order)]
        if user is None or not isinstance(self.runtime, runtimes.ConcurrentRuntime):
            return self.runtime.bind(self.inputs[item])
        if user != ARRIVAL:
            return self.runtime.bind_concurrent(self.inputs[item], user)
        if item not in self._arrivals:
            self._arrivals[item] = self.runtime.bind_concurrent(self.inputs[item])
        return self._arrivals[item]

    def finish(self, number: int, result: Any, end_ns: int) -> int:
        """Keep the outputs of a few timed queries, spread over all.

        An answer that differs from those before is read.
        """
        answer = result if isinstance(result, Answered) else None
        if answer is not None:
            answer.end()
        item, is_kept = self._order[number % len(self._order)], False
        if self._kept_every and number >= 0:
            is_kept = (
                self._finished % self._kept_every == 0
                and len(self.kept) < KEPT_OUTPUTS
                and item not in self.kept
            )
            self._finished += 1
        if is_kept or (answer is not None and answer.is_unlike):
            outputs = self.runtime.outputs() if answer is None else answer.outputs()
            if is_kept:
                with self._lock:
                    self.kept[item] = outputs
                    self.kept_bytes = sum(
                        array.nbytes for arrays in self.kept.values() for array in arrays
                    )
        return end_ns

    def results(self, timed: TimedQueries, emit: Emit) -> Results:
        """Return the model, whether its outputs are repeatable, and its accuracy."""
        loaded = self.runtime.with_late_facts(self.model.loaded)
        model, data = replace(self.model, loaded=loaded), self.model.data
        # The last answer of a server may be an error; it is read once, and then the answer before
        # it.
        outputs = loading.describe_outputs(loaded.outputs, until_answered(self.runtime.outputs))
        evaluated = evaluate(
            self.work, model, self.inputs, self.kept, emit, is_by_item=self.is_by_item
        )
        return Results(
            queries=timed,
            model=loading.describe_model(self.work, model),
            runtime=loading.describe_runtime(self.case, loaded, self.inputs),
            precision=model.card.precision if model.card else loading.describe_precision(loaded),
            inputs=loading.describe_inputs(loaded.inputs, self._first),
            outputs=outputs,
            dataset=DatasetInfo(name=data.name, sha256=data.sha256, images=len(data.items))
            if data
            else noise.dataset(self.case.seed),
            batch=self.samples,
            guesses=model.guesses,
            **msgspec.structs.asdict(evaluated),
        )

    def close(self) -> None:
        """Let the model go."""
        self.runtime.close()
