"""Rules on runs in the process of their caller: what its other threads, its caches and the function itself can do to a latency."""

from edgemeter.agent.engine.job import IN_PROCESS
from edgemeter.agent.verdict.rule import Rules, RunFacts

# What `waited-for-core` allows: a thread that holds Python's lock costs as much as one that holds the core.
OTHER_THREADS_RATIO = 0.03
RULES = Rules()


def _fact(facts: RunFacts, name: str) -> str | None:
    runtime = facts.measured.runtime
    return runtime.facts.get(name) if runtime.backend == IN_PROCESS else None


@RULES.suspect(
    "a function that is measured has done its work when it returns",
    "results of JAX and of accelerators are waited for; a thread that goes on computes what the latency leaves out",
    "wait for the result within the function (join the thread, ask the future)",
)
def _unfinished_work(facts: RunFacts) -> str | None:
    return _fact(facts, "unfinished")


@RULES.suspect(
    "a function that is measured computes its result in each call",
    "a stored result costs a look-up, whatever it took once",
    "give as many different inputs as there are calls, or take the cache off",
)
def _stored_result(facts: RunFacts) -> str | None:
    return _fact(facts, "stored")


@RULES.suspect(
    "a function that is measured leaves its inputs as they are",
    "a list that is sorted already is sorted faster",
    "copy the input within the function",
)
def _inputs_changed(facts: RunFacts) -> str | None:
    return _fact(facts, "inputs_changed")


@RULES.suspect(
    "other threads of Python in the caller's process ran for at most 3% of the time",
    "while they hold Python's lock, the function waits; threads that the function starts by itself are part of it",
    "stop the other threads first, or measure a file with `edgemeter run`",
)
def _other_threads(facts: RunFacts) -> str | None:
    share_text, _, busiest = (_fact(facts, "other_threads_ratio") or "0").partition(" ")
    if float(share_text) <= OTHER_THREADS_RATIO:
        return None
    return f"other threads of this process ran for {float(share_text):.0%} of the time ({busiest} the most): stop them first"


@RULES.note(
    "the run has a process of its own",
    "in its caller's, memory, imports and threads are the caller's too",
    "none is needed; `edgemeter run FILE` gives a process of its own",
)
def _in_process(facts: RunFacts) -> str | None:
    if facts.measured.runtime.backend != IN_PROCESS:
        return None
    unknown = facts.measured.runtime.threads_reason
    threads = f"; its number of threads is not known: {unknown}" if unknown else ""
    return f"measured in the process of its caller: memory is that of the whole process, and the cold start only the first call{threads}"


@RULES.note(
    "a query is one call",
    "shorter ones than 100 times the reading of the clock are timed in batches",
    "none is needed",
)
def _calls_batched(facts: RunFacts) -> str | None:
    return _fact(facts, "calls_per_query")


@RULES.note(
    "calls leave no garbage in cycles",
    "the collector is off while queries are timed, so that its time is in no latency",
    "break the cycles, or add the collector's time yourself",
)
def _garbage_left(facts: RunFacts) -> str | None:
    return _fact(facts, "garbage")


@RULES.note(
    "the first call is not a hundred times as long as later ones",
    "it compiles, or stores results by their inputs",
    "the cold start has the first call; what is stored shows in `stored-result`",
)
def _long_first_call(facts: RunFacts) -> str | None:
    return _fact(facts, "long_first")


@RULES.note("a module of PyTorch is in evaluation mode", "in training mode dropout and normalisation do other work", "call `.eval()` first")
def _training_mode(facts: RunFacts) -> str | None:
    return _fact(facts, "training")
