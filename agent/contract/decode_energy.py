"""The energy of decoding, as the difference of two runs.

They differ only in their output tokens; one has a single token.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.base.number_text import with_uncertainty
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord

# An energy and its expanded uncertainty (None: unknown), mJ.
Uncertain = tuple[float, float | None]


def decode_token_mj(
    request: Uncertain,
    one_token_request: Uncertain,
    output_tokens: float,
    prefill_apart_mj: float | None,
) -> Uncertain:
    """Return the energy per token after the first, in mJ.

    It is from requests with `output_tokens` and with one token. Uncertainties add in squares, with
    the difference of the prefills (`prefill_apart_mj`, None: unknown). A common error of the gain
    cancels in part, so that the interval is wider than necessary.
    """
    (whole_mj, whole_u_mj), (one_mj, one_u_mj) = request, one_token_request
    decoded = output_tokens - 1
    is_known = whole_u_mj is not None and one_u_mj is not None and prefill_apart_mj is not None
    u_mj = (
        math.hypot(whole_u_mj or 0.0, one_u_mj or 0.0, prefill_apart_mj or 0.0) / decoded
        if is_known
        else None
    )
    return (whole_mj - one_mj) / decoded, u_mj


def decode_energy(run: RunRecord, one_token_run: RunRecord) -> Uncertain | None:
    """Return the energy per token after the first from two runs.

    None if they differ in more than their output tokens. In an open loop the machine idles less
    with longer answers, so the difference is not the energy of decoding.
    """
    text, one_token, energy, one_token_energy = (
        run.generation,
        one_token_run.generation,
        run.energy,
        one_token_run.energy,
    )
    if text is None or one_token is None or energy is None or one_token_energy is None:
        return None
    if (
        one_token.output_tokens != 1
        or text.mean_output_tokens <= 1
        or (run.load is not None and run.load.target_per_s is not None)
    ):
        return None
    if _without_output(run) != _without_output(one_token_run) or energy_provenance(run) == "shared":
        return None
    # Prompts for a server have about the requested length.
    if not math.isclose(
        text.mean_prompt_tokens or math.nan,
        one_token.mean_prompt_tokens or math.nan,
        rel_tol=MATTERS_RATIO,
    ):
        return None
    apart_ms = text.ttft.mean_ms - one_token.ttft.mean_ms if text.ttft and one_token.ttft else None
    return decode_token_mj(
        (energy.gross_mj, energy.gross_u_mj),
        (one_token_energy.gross_mj, one_token_energy.gross_u_mj),
        text.mean_output_tokens,
        None if apart_ms is None else apart_ms * one_token_energy.mean_power_w,
    )


def decode_lines(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield a line with the energy of decoding for each pair of runs that gives one."""
    one_token_runs = [run for run in runs if run.generation and run.generation.output_tokens == 1]
    for run, one_token_run in product(runs, one_token_runs):
        decode, text, one_token = (
            decode_energy(run, one_token_run),
            run.generation,
            one_token_run.generation,
        )
        if decode is None or text is None or one_token is None:
            continue
        of_tokens, prefill = one_token.energy, ""
        if of_tokens and of_tokens.prefill_token_gross_mj is not None:
            of_prompt = with_uncertainty(
                of_tokens.prefill_token_gross_mj, of_tokens.prefill_token_gross_u_mj
            )
            prefill = f", prefill {of_prompt} mJ/prompt token"
        yield (
            f"{run.model.name} {text.lengths}: decoding takes {with_uncertainty(*decode)} mJ/token "
            f"(difference of the runs with {text.output_tokens} and 1 output tokens){prefill}"
        )


def _without_output(run: RunRecord) -> tuple[CaseKey, str | None, str, str | None]:
    """Return the key that two runs share if they differ only in output tokens.

    The hash of synthetic prompts depends on these too.
    """
    key = msgspec.structs.replace(key_of(run), output_tokens=None, dataset_sha256="")
    prompts_sha256 = run.generation.prompts_sha256 if run.generation else None
    return key, prompts_sha256, run.energy.sensor if run.energy else "", energy_provenance(run)
