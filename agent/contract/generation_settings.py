"""Settings of a case that generates text: the lengths of its queries, and what is for other models only."""

from collections.abc import Collection, Mapping

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_settings import OVERLAPPING, Settings
from edgemeter.agent.contract.model_formats import GENERATORS, OUR_RUNTIMES

PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
# A query of a language model is many steps and takes seconds: a mode asks for fewer (a median needs 11 queries, p90 64).
GENERATION_QUERIES = {"rapid": 11, "quick": 11, "normal": 64, "full": 64, "sustained": 11}
TOKEN_AXES = ("prompt_tokens", "output_tokens")
# Settings for models of images: of the defaults they do not reach a language model.
OF_IMAGES = ("data", "annotations", "reader", "subset", "reference_accuracy", "predictions", "agreement")


def generating_settings(merged: Settings, set_values: Collection[str], runtime: str, axes: Mapping[str, object], where: str) -> Settings:
    """Return the settings of a case that generates text: single lengths of prompt and output, nothing of what is for others."""
    if runtime in OUR_RUNTIMES - GENERATORS - {"replay"}:
        raise ConfigError(f"{where}: {' and '.join(TOKEN_AXES)} are for language models, {runtime} runs one call: leave them out")
    if merged.scenario in OVERLAPPING and runtime != "server":
        raise ConfigError(
            f"{where}: {runtime} answers one query after the other: leave {merged.scenario} out, or measure a server (NAME.server)"
        )
    if merged.scenario not in (None, "single_stream", *OVERLAPPING):
        raise ConfigError(
            f"{where}: a language model runs in single_stream, behind a server also in {', '.join(OVERLAPPING)}, "
            f"not {merged.scenario}: leave it out"
        )
    if useless := [key for key in OF_IMAGES if key in set_values and not (key == "subset" and merged.prompts)]:
        raise ConfigError(f"{where}: {useless[0]} is not for language models: leave it out")
    if merged.prompts and "prompt_tokens" in set_values:
        raise ConfigError(f"{where}: prompts of a file have lengths of their own: leave prompt_tokens or prompts out")
    settings = {
        "prompt_tokens": axes["prompt_tokens"] or (None if merged.prompts else PROMPT_TOKENS),
        "output_tokens": axes["output_tokens"] or OUTPUT_TOKENS,
        "subset": merged.subset if merged.prompts else None,
        "agreement": "never",
    }
    return msgspec.structs.replace(merged, **(dict.fromkeys(OF_IMAGES) | settings))
