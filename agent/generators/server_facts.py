"""The facts that a server of language models reports about its model and itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.model_server import ModelServer
from edgemeter.agent.base.server_address import ServerAddress

# Synthetic prompts are drawn from the tokens of these words.
ORDINARY_WORDS = (
    "the board on the bench reads one value every second and writes it to a file while a small "
    "fan keeps the room cool; "
    "we count them, add them up, divide by ten and look at what is left over before lunch"
)
# A mark of the template that llama.cpp reports for a model without one.
_CHATML = "<|im_start|>"


class ServerFile(ServerAddress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server, as its file describes it.

    The keys are explained in `edgemeter.agent.generators.server`.
    """

    model: str | None = None
    endpoint: Literal["completions", "chat"] = "completions"
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about a server; None is unknown.

    `context_tokens` is the longest query that it accepts.
    """

    model: str
    version: str = "unknown"
    is_llama: bool = False
    has_template: bool = False
    vocabulary: int | None = None
    context_tokens: int | None = None
    trained_context_tokens: int | None = None
    precision: str | None = None
    parameters: int | None = None
    speculative: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def ask_facts(connection: ModelServer, file: ServerFile) -> ServerFacts:
    """Return the facts that the server reports.

    Raises:
        AnswerError: it does not answer.
        UnavailableError: it serves no model, or not the one that the file names.
    """
    props = connection.ask("/props").document
    listed = connection.ask("/v1/models").document.get("data")
    models = (
        {str(entry["id"]): entry for entry in listed if isinstance(entry, dict) and "id" in entry}
        if isinstance(listed, list)
        else {}
    )
    if file.model is None and not models:
        raise UnavailableError(
            f"{file.url} lists no model under /v1/models: load one there, or name it as model in "
            "the server's file"
        )
    if file.model is not None and models and file.model not in models:
        raise UnavailableError(
            f"{file.url} has no model {file.model!r}: it has {', '.join([*models][:8])}"
        )
    model = file.model or next(iter(models))
    served = models.get(model, {})
    if "default_generation_settings" in props:
        return _of_llama(connection, model, props, _part(served, "meta"))
    owner = served.get("owned_by")
    return ServerFacts(model, facts={"owned_by": owner} if isinstance(owner, str) else {})


def _of_llama(
    connection: ModelServer, model: str, props: Mapping[str, Any], meta: Mapping[str, Any]
) -> ServerFacts:
    """Return the facts that llama.cpp's server reports."""
    settings = _part(props, "default_generation_settings")
    template, precision = props.get("chat_template"), props.get("model_ftype", meta.get("ftype"))
    speculative = _part(settings, "params").get("speculative.types")
    # In a model with that template, the mark is one token.
    is_stand_in = (
        isinstance(template, str)
        and _CHATML in template
        and len(tokens_of(connection, _CHATML, special=False)) > 1
    )
    facts = {
        "total_slots": props.get("total_slots"),
        "n_ctx": settings.get("n_ctx"),
        "model_size_bytes": meta.get("size"),
    }
    return ServerFacts(
        model,
        str(props.get("build_info", "unknown")),
        is_llama=True,
        has_template=bool(template) and not is_stand_in,
        vocabulary=_count(meta, "n_vocab"),
        context_tokens=_count(settings, "n_ctx"),
        trained_context_tokens=_count(meta, "n_ctx_train"),
        precision=precision.lower() if isinstance(precision, str) else None,
        parameters=_count(meta, "n_params"),
        speculative=None if speculative in (None, "", "none") else str(speculative),
        facts={name: str(value) for name, value in facts.items() if value is not None},
    )


def tokens_of(connection: ModelServer, text: str, *, special: bool) -> list[int]:
    """Return the tokens of a text by llama.cpp's server.

    They have the begin-of-text token if `special`. Empty without an answer.
    """
    tokens = connection.ask("/tokenize", {"content": text, "add_special": special}).document.get(
        "tokens"
    )
    return (
        tokens
        if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens)
        else []
    )


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _count(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
