"""Rules on what ran where: operators that an accelerator left to the CPU, and a GPU that is none."""

import re

from edgemeter.agent.verdict.rule import Rules, RunFacts

MOST_ON_CPU = 0.5
_SOFTWARE_GPU = re.compile(r"\(software\)|llvmpipe|lavapipe|swiftshader", re.IGNORECASE)
RULES = Rules()


@RULES.suspect(
    "an accelerator runs at least half of the model's operators",
    "else the figures are mostly the CPU's",
    "a model whose operators the accelerator has, or the CPU as backend",
)
def _mostly_on_cpu(facts: RunFacts) -> str | None:
    share = _cpu_share(facts)
    return None if share is None or share[0] <= MOST_ON_CPU else share[1]


@RULES.note(
    "an accelerator runs all operators of the model",
    "each operator on the CPU costs its time and two copies; compare such a run with one of the same split only",
    "a model without those operators",
)
def _partly_on_cpu(facts: RunFacts) -> str | None:
    share = _cpu_share(facts)
    if share is not None:
        return None if share[0] > MOST_ON_CPU else share[1]
    reported = facts.measured.runtime.facts
    if reported.get("fully_accelerated") == "no":
        return "the library reports that not all operators are on the accelerator, and not how many"
    if reported.get("fully_accelerated") == "not reported":
        return "the library does not report what the accelerator took: session.disable_cpu_ep_fallback=1 refuses operators on the CPU"
    count = int(reported.get("cpu_operators", "0"))
    return f"{_operators(count)} on the CPU; the program of the Edge TPU counts as one, so the share is unknown" if count else None


@RULES.suspect(
    "no processor plays the GPU (llvmpipe, lavapipe, SwiftShader)",
    "the latency of a software renderer says nothing about a GPU",
    "install the GPU's driver",
)
def _software_gpu(facts: RunFacts) -> str | None:
    reported = facts.measured.runtime.facts
    names = reported.get("gpu") or reported.get("gpus_present", "")
    # Of several it is not known which computed.
    return f"the processor played the GPU: {names}" if all(map(_SOFTWARE_GPU.search, names.split("; "))) else None


def _cpu_share(facts: RunFacts) -> tuple[float, str] | None:
    """Return the share of the operators on the CPU, in words too; None where none is there beside an accelerator, or nobody counted."""
    reported = facts.measured.runtime.facts
    counts = {name.removeprefix("operators_on_"): int(count) for name, count in reported.items() if name.startswith("operators_on_")}
    on_cpu, total = counts.get("cpu", 0), sum(counts.values())
    if not on_cpu or on_cpu == total:
        return None
    kinds = f": {reported['left_to_cpu']}" if "left_to_cpu" in reported else ""
    return on_cpu / total, f"{on_cpu} of {_operators(total)} ({on_cpu / total:.0%}) on the CPU{kinds}"


def _operators(count: int) -> str:
    return "1 operator" if count == 1 else f"{count} operators"
