"""Shared code of the generators: the check of a query's prompt and limits before an engine gets them."""

from collections.abc import Sequence

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.generators import Chat, Limits, Prompt


def check_tokens(prompt: Prompt, limits: Limits, context_tokens: int, vocabulary: int) -> Sequence[int]:
    """Return the prompt of a generator that takes tokens: ids below `vocabulary`, with its output at most `context_tokens`.

    Raises:
        ConfigError: it is a text or empty, holds ids that the model does not have, or is too long; or no output is asked for.
    """
    if isinstance(prompt, str | Chat):
        raise ConfigError("this generator takes a prompt as tokens: encode the text first")
    if limits.output_tokens < 1:
        raise ConfigError(f"cannot generate {limits.output_tokens} tokens: ask for 1 or more")
    if not prompt:
        raise ConfigError("cannot generate from an empty prompt: give 1 token or more")
    wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise ConfigError(f"the model has no token {wrong}: its ids are 0 to {vocabulary - 1}")
    needed_tokens = len(prompt) + limits.output_tokens
    if needed_tokens > context_tokens:
        raise ConfigError(
            f"a prompt of {len(prompt)} tokens and {limits.output_tokens} of output need a context of {needed_tokens}, "
            f"{context_tokens} are allocated: shorten one of them"
        )
    return prompt
