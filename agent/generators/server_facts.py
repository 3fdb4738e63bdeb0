"""The facts that a server of language models states: its kind, the model that it serves, and how it serves it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.model_server import ModelServer
from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.generators.adapter import part
from edgemeter.agent.generators.server_dialects import Dialect, Endpoint, LlamaChat, LlamaServer, Ollama, OpenAi, Vllm

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
Kind = Literal["llama-server", "ollama", "vllm", "openai"]


class ServerFile(ServerAddress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server, as its file describes it; the keys are explained in `edgemeter.agent.generators.server`."""

    server: Literal["auto", Kind] = "auto"
    model: str | None = None
    endpoint: Endpoint = "completions"
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The known facts of a server; None is unknown. `context_tokens` is the longest query that it accepts."""

    dialect: Dialect
    model: str
    version: str
    vocabulary: int | None = None
    context_tokens: int | None = None
    trained_context_tokens: int | None = None
    precision: str | None = None
    parameters: int | None = None
    digest_sha256: str | None = None
    chat_template: str | None = None
    speculative: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def ask_facts(connection: ModelServer, file: ServerFile) -> ServerFacts:
    """Return the facts that the server states; its kind is queried unless the model file names it.

    Raises:
        TransientError: it does not answer.
        UnavailableError: it serves no model, or not the one that the file names.
    """
    kind = file.server if file.server != "auto" else _kind(connection)
    if kind == "ollama":
        return _of_ollama(connection, _model(connection, file))
    if kind == "llama-server":
        return _of_llama_server(connection, file.endpoint)
    model = _model(connection, file)
    if kind == "vllm":
        listed = next((entry for entry in _models(connection) if entry.get("id") == model), {})
        version = str(connection.ask("/version").document.get("version", "unknown"))
        return ServerFacts(Vllm(model, file.endpoint), model, version, context_tokens=_count(listed, "max_model_len"))
    return ServerFacts(OpenAi(model, file.endpoint), model, "unknown")


def _kind(connection: ModelServer) -> Kind:
    if "default_generation_settings" in connection.ask("/props").document:
        return "llama-server"
    if "vllm" in {entry.get("owned_by") for entry in _models(connection)}:
        return "vllm"
    return "ollama" if "version" in connection.ask("/api/version").document else "openai"


def _models(connection: ModelServer) -> list[Mapping[str, Any]]:
    listed = connection.ask("/v1/models").document.get("data")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _model(connection: ModelServer, file: ServerFile) -> str:
    names = [str(entry["id"]) for entry in _models(connection) if "id" in entry]
    if file.model is None and not names:
        raise UnavailableError(f"{file.url} lists no model under /v1/models: load one there, or name it as model in the server's file")
    if file.model is not None and names and file.model not in names:
        raise UnavailableError(f"{file.url} has no model {file.model!r}: it has {', '.join(names[:8])}")
    return file.model or names[0]


def _of_llama_server(connection: ModelServer, endpoint: Endpoint) -> ServerFacts:
    props, served = connection.ask("/props").document, next(iter(_models(connection)), {})
    settings, meta = part(props, "default_generation_settings"), part(served, "meta")
    params = part(settings, "params")
    facts = {
        "total_slots": props.get("total_slots"),
        "n_ctx": settings.get("n_ctx"),
        "model_path": props.get("model_path"),
        "model_size_bytes": meta.get("size"),
    }
    speculative = params.get("speculative.types")
    precision = props.get("model_ftype", meta.get("ftype"))
    name = str(served.get("id", props.get("model_alias", "")))
    return ServerFacts(
        LlamaChat(name, endpoint) if endpoint == "chat" else LlamaServer(),
        name,
        str(props.get("build_info", "unknown")),
        vocabulary=_count(meta, "n_vocab"),
        context_tokens=_count(settings, "n_ctx"),
        trained_context_tokens=_count(meta, "n_ctx_train"),
        precision=precision.lower() if isinstance(precision, str) else None,
        parameters=_count(meta, "n_params"),
        chat_template=_text(props, "chat_template"),
        speculative=None if speculative in (None, "", "none") else str(speculative),
        facts={name: str(value) for name, value in facts.items() if value is not None},
    )


def _of_ollama(connection: ModelServer, model: str) -> ServerFacts:
    version = str(connection.ask("/api/version").document.get("version", "unknown"))
    document = connection.ask("/api/show", {"model": model}).document
    details, info = part(document, "details"), part(document, "model_info")
    trained = _count(info, f"{info.get('general.architecture')}.context_length")
    level = _text(details, "quantization_level")
    return ServerFacts(
        Ollama(model),
        model,
        version,
        # Its own default is far shorter, but every query states what it needs.
        context_tokens=trained,
        trained_context_tokens=trained,
        precision=level.lower() if level else None,
        parameters=_count(info, "general.parameter_count"),
        chat_template=_text(document, "template"),
        digest_sha256=_digest(connection, model),
    )


def _digest(connection: ModelServer, model: str) -> str | None:
    """Return the hash by which Ollama names the version of a model that it has."""
    listed = connection.ask("/api/tags").document.get("models")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    digest = next((_text(entry, "digest") for entry in entries if model in (entry.get("name"), entry.get("model"))), None) or ""
    sha256 = digest.removeprefix("sha256:")
    return sha256 if _SHA256.fullmatch(sha256) else None


def _count(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and value else None
