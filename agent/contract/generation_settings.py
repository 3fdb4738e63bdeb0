"""Settings of a case that generates text: the lengths of its queries, and what is for other models only."""

from collections.abc import Collection, Mapping

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_settings import OVERLAPPING, Settings
from edgemeter.agent.contract.model_formats import GENERATORS, OUR_RUNTIMES

PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
TURNS = 4
# A query of a language model is many steps and takes seconds: a mode asks for fewer (a median needs 11 queries, p90 64).
GENERATION_QUERIES = {"rapid": 11, "quick": 11, "normal": 64, "full": 64, "sustained": 11}
TOKEN_AXES = ("prompt_tokens", "depth_tokens", "output_tokens")
# Settings for models of images: of the defaults they do not reach a language model.
OF_IMAGES = ("data", "annotations", "reader", "subset", "reference_accuracy", "predictions", "agreement")


def generating_settings(merged: Settings, set_values: Collection[str], runtime: str, axes: Mapping[str, object], where: str) -> Settings:
    """Return the settings of a case that generates text: single lengths of prompt and output, nothing of what is for others."""
    talks = merged.scenario == "conversation"
    if runtime in OUR_RUNTIMES - GENERATORS - {"replay"}:
        raise ConfigError(
            f"{where}: {', '.join(TOKEN_AXES)}, conversation and trace are for language models, {runtime} runs one call: leave them out"
        )
    if axes["depth_tokens"] is not None and (axes["prompt_tokens"] is not None or merged.scenario in OVERLAPPING):
        unfit = "prompt_tokens" if axes["prompt_tokens"] is not None else merged.scenario
        raise ConfigError(f"{where}: queries at a depth have no prompt, and come one after the other: leave {unfit} or depth_tokens out")
    if merged.scenario in OVERLAPPING and runtime != "server":
        raise ConfigError(
            f"{where}: {runtime} answers one query after the other: leave {merged.scenario} out, or measure a server (NAME.server)"
        )
    if merged.scenario not in (None, "single_stream", "conversation", *OVERLAPPING):
        raise ConfigError(
            f"{where}: a language model runs in single_stream, in conversation, behind a server also in {', '.join(OVERLAPPING)}, "
            f"not {merged.scenario}: leave it out"
        )
    if useless := [key for key in OF_IMAGES if key in set_values and not (key == "subset" and merged.prompts)]:
        raise ConfigError(f"{where}: {useless[0]} is not for language models: leave it out")
    if merged.prompts and (other := next((key for key in ("prompt_tokens", "depth_tokens") if key in set_values), None)):
        raise ConfigError(f"{where}: prompts of a file have lengths of their own: leave {other} or prompts out")
    misfits = (*TOKEN_AXES, "prompts", "minutes") if merged.trace else ("depth_tokens", "prompts") if talks else ()
    if other := next((key for key in misfits if getattr(merged, key) is not None), None):
        raise ConfigError(f"{where}: prompts of a {merged.scenario} are synthetic, in its own lengths and number: leave {other} out")
    settings = {
        "prompt_tokens": axes["prompt_tokens"]
        or (None if merged.prompts or merged.trace or axes["depth_tokens"] is not None else PROMPT_TOKENS),
        "turns": (merged.turns or TURNS) if talks else None,
        "prefix_cache": (axes["prefix_cache"] or "off") if talks else None,
        "output_tokens": axes["output_tokens"] or OUTPUT_TOKENS,
        "subset": merged.subset if merged.prompts else None,
        "agreement": "never",
    }
    return msgspec.structs.replace(merged, **(dict.fromkeys(OF_IMAGES) | settings))
