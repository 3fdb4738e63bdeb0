"""Rules on the timed work.

They are on whether all of it was done, rightly and by what was meant to do it, and on what a reader
should know of it.
"""

import re
from itertools import pairwise

from edgemeter.agent.contract.held_load import fails_too_often
from edgemeter.agent.contract.model_card import UNSURE_FAMILY
from edgemeter.agent.contract.record_generation import MOST_CACHED
from edgemeter.agent.engine.job import IN_PROCESS
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.rule import Rule, RuleEvidence

# Six times the growth of healthy runs in 10 to 60 s: -1.5 to 2.5 MB (LiteRT, ONNX Runtime,
# TorchScript, PyTorch eager and compiled, JAX).
GROWN_MB = 16.0
# A leak grows in each third of a run. Healthy runs grew by at most 2.5 MB in all three together,
# mostly in the first. At the second limit, 4 GB are full within four hours.
GROWN_IN_THIRD_MB, GROWN_IN_HOUR_MB = 1.0, 1000.0
_SOFTWARE_GPU = re.compile(r"\(software\)|llvmpipe|lavapipe|swiftshader", re.IGNORECASE)


def rate_not_sustained(facts: Facts) -> RuleEvidence | None:
    """Beyond the rate the queue grows, and latency with the length of the run.

    A camera drops frames instead, which is an answer.
    """
    load = facts.run.load
    if load is None or load.is_sustained is not False or facts.run.steady is not None:
        return None
    rates = {"load_target_per_s": load.target_per_s, "throughput_per_s": facts.run.throughput_per_s}
    dropped = {"load_unserved": float(load.unserved)} if load.unserved else {}
    return RuleEvidence({name: rate for name, rate in rates.items() if rate is not None} | dropped)


def failed_queries(facts: Facts) -> RuleEvidence | None:
    """A loaded server that drops requests answers the others sooner.

    With 1% lost, p99 tells nothing.
    """
    load, count = facts.run.load, facts.run.latency.count
    if load is None or not fails_too_often(load, facts.run.generation, count):
        return None
    kinds = ", ".join(f"{kind}: {failed}" for kind, failed in load.failures.items())
    return RuleEvidence(
        {"failed_queries": load.failed_queries, "queries": load.failed_queries + count},
        kinds or None,
    )


def outputs_differ(facts: Facts) -> RuleEvidence | None:
    """Outputs kept while timing differ from those for the same inputs later.

    They must agree within 0.1% of each channel's maximum, or in all boxes.
    """
    check = facts.run.output_check
    return (
        RuleEvidence(
            {"output_check_differing": check.differing, "output_check_compared": check.compared}
        )
        if check.differing
        else None
    )


def cached_prompt(facts: Facts) -> RuleEvidence | None:
    """Only one token of each prompt and those of the chat template may come from a cache.

    The one token is the begin of text.
    """
    text = facts.run.generation
    if (
        text is None
        or text.cached_tokens is None
        or text.cached_tokens <= MOST_CACHED + (text.template_tokens or 0)
    ):
        return None
    return RuleEvidence(
        {
            "generation_cached_tokens": text.cached_tokens,
            "generation_prompt_tokens": text.prompt_tokens or 0,
        }
    )


def incomplete_calls(facts: Facts) -> RuleEvidence | None:
    """A function that leaves work to a thread, stores its results, or changes its inputs."""
    runtime = facts.run.runtime
    doubt = runtime.facts.get("incomplete") if runtime.backend == IN_PROCESS else None
    return RuleEvidence(subject=doubt) if doubt else None


def software_gpu(facts: Facts) -> RuleEvidence | None:
    """Of several devices it is not known which computed."""
    reported = facts.run.runtime.facts
    names = reported.get("gpu") or reported.get("gpus_present", "")
    return (
        RuleEvidence(subject=names) if all(map(_SOFTWARE_GPU.search, names.split("; "))) else None
    )


def answers_vary(facts: Facts) -> RuleEvidence | None:
    """Greedy generation has one answer.

    A different one was sampled, or computed with other load at the same time.
    """
    check = facts.run.output_check
    return (
        RuleEvidence(
            {"output_check_varying": check.varying, "output_check_compared": check.compared}
        )
        if check.varying
        else None
    )


def partly_on_cpu(facts: Facts) -> RuleEvidence | None:
    """Each operator on the CPU costs its time and two copies."""
    reported = facts.run.runtime.facts
    counts = {
        name.removeprefix("operators_on_"): int(count)
        for name, count in reported.items()
        if name.startswith("operators_on_")
    }
    on_cpu, total = counts.get("cpu", 0), sum(counts.values())
    if on_cpu and on_cpu < total:
        return RuleEvidence(
            {"operators_on_cpu": on_cpu, "operators": total}, reported.get("left_to_cpu")
        )
    # The program of an Edge TPU counts as one operator, so there is no share.
    if edge_tpu_left := int(reported.get("cpu_operators", "0")):
        return RuleEvidence({"cpu_operators": edge_tpu_left})
    return RuleEvidence() if reported.get("fully_accelerated") == "no" else None


def ended_early(facts: Facts) -> RuleEvidence | None:
    """Figures per token are of the tokens that came.

    A whole query compares only with answers of the same length.
    """
    text = facts.run.generation
    if text is None or not text.ended_early:
        return None
    return RuleEvidence(
        {
            "generation_ended_early": text.ended_early,
            "queries": facts.run.latency.count,
            "generation_output_tokens": text.output_tokens,
        }
    )


def not_reported(facts: Facts) -> RuleEvidence | None:
    """A runtime or a server does not report something that it alone knows."""
    run = facts.run
    subjects = [
        "what the accelerator left to the CPU"
        if run.runtime.facts.get("fully_accelerated") == "not reported"
        else "",
        "the number of tokens, which is estimated from chunks of text"
        if run.generation and run.generation.counts == "estimated"
        else "",
        "how much of a prompt came from a cache"
        if run.generation and run.generation.cached_tokens is None
        else "",
    ]
    return RuleEvidence(subject="; ".join(filter(None, subjects))) if any(subjects) else None


def memory_grows(facts: Facts) -> RuleEvidence | None:
    """A model that keeps what it computes fills the memory.

    A library may keep more memory when a larger input comes.
    """
    run, memory = facts.run, facts.run.memory
    if memory.grown_mb is None or "timed_shapes" in run.runtime.facts:
        return None
    # At most the total growth, which is without the outputs that the benchmark keeps.
    steady_mb = min(
        3
        * min((later - earlier for earlier, later in pairwise(run.memory_thirds_mb)), default=0.0),
        memory.grown_mb,
    )
    timed_h = (run.timed.end_ns - run.timed.start_ns) / 3.6e12
    is_steady = steady_mb >= 3 * GROWN_IN_THIRD_MB and steady_mb > GROWN_IN_HOUR_MB * timed_h
    if memory.grown_mb <= GROWN_MB and not is_steady:
        return None
    return RuleEvidence({"memory_grown_mb": memory.grown_mb, "queries": run.latency.count})


def unsure_model(facts: Facts) -> RuleEvidence | None:
    """Without a card, accuracy and boxes rest on assumptions.

    For example, the head of a pose looks like that of a detector.
    """
    kinds = (UNSURE_FAMILY,) if facts.run.accuracy is None else (UNSURE_FAMILY, "unsure")
    doubts = [guess.text for guess in facts.run.guesses if guess.kind in kinds]
    return RuleEvidence(subject="; ".join(doubts)) if doubts else None


RULES = (
    Rule(
        "rate-not-sustained",
        "invalid",
        "[{load_target_per_s:,.4g} queries/s arrived, but ]only {throughput_per_s:,.4g}/s were "
        "served[; {load_unserved:,.0f} were dropped]",
        "Lower `--rate`.",
        rate_not_sustained,
    ),
    Rule(
        "failed-queries",
        "invalid",
        "{failed_queries:,.0f} of {queries:,.0f} queries failed[ ({subject})]",
        "Read the server's log, and send fewer queries at once.",
        failed_queries,
    ),
    Rule(
        "outputs-differ",
        "invalid",
        "{output_check_differing:,.0f} of {output_check_compared:,.0f} timed outputs differ from "
        "later outputs for the same input",
        "Use another backend, or another release of the runtime.",
        outputs_differ,
    ),
    Rule(
        "cached-prompt",
        "invalid",
        "{generation_cached_tokens:,.0f} of {generation_prompt_tokens:,.0f} prompt tokens came "
        "from a cache",
        "Switch the engine's prompt cache off.",
        cached_prompt,
    ),
    Rule(
        "incomplete-calls",
        "invalid",
        "the timed calls do not do the whole work: {subject}",
        "Wait for results within the function, keep no cache in it, and copy the inputs "
        "that it changes.",
        incomplete_calls,
    ),
    Rule(
        "software-gpu",
        "disturbed",
        "the processor emulates the GPU ({subject})",
        "Install the GPU's driver.",
        software_gpu,
    ),
    Rule(
        "answers-vary",
        "disturbed",
        "{output_check_varying:,.0f} of {output_check_compared:,.0f} prompts got a different "
        "answer the second time",
        "Stop other clients of the server, and set no `temperature`.",
        answers_vary,
    ),
    Rule(
        "partly-on-cpu",
        "note",
        "a part of the model ran on the CPU[: {operators_on_cpu:,.0f} of {operators:,.0f} "
        "operators][: {cpu_operators:,.0f} operators]"
        "[ ({subject})]",
        "Use a model whose operators the accelerator has, and that fits its memory.",
        partly_on_cpu,
    ),
    Rule(
        "ended-early",
        "note",
        "{generation_ended_early:,.0f} of {queries:,.0f} answers ended before "
        "{generation_output_tokens:,.0f} tokens",
        "Let the engine ignore the end of text (`ignore_eos` in the server's file).",
        ended_early,
    ),
    Rule(
        "not-reported",
        "note",
        "not reported: {subject}",
        "Use an engine that reports it.",
        not_reported,
    ),
    Rule(
        "memory-grows",
        "note",
        "resident memory grew by {memory_grown_mb:,.3g} MB in {queries:,.0f} queries",
        "Let the model release its results; keep no graph for gradients "
        "(`torch.inference_mode()`).",
        memory_grows,
    ),
    Rule(
        "unsure-model",
        "note",
        "the model's file does not confirm the assumption ({subject})",
        "Write a card for the model.",
        unsure_model,
    ),
)
