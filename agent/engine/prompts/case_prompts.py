"""The prompts of a case: made ready before the load that is measured, because it needs their lengths, and named for the record."""

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgemeter.agent import generators
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.case_identity import USUAL_KV_TYPE
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.contract.record_generation import SYNTHETIC
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.file_prompts import FilePrompts, PromptEncoder
from edgemeter.agent.engine.prompts.prompt_file import PromptFile, read_prompts
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import Chat, ChatMessage, Generator, LoadedGenerator, Prompt
from edgemeter.agent.runtimes import Options

# Of a message that only a server can count: its bytes, and about what a template puts around it.
_TEMPLATE_TOKENS = 16
# A pass of a file without right answers may take so many times as long as the queries that a case asks for.
MOST_PASS_RATIO = 4


@dataclass(frozen=True, slots=True)
class CasePrompts:
    """The prompts of a case with the context that they need; `file` is None of synthetic ones.

    `has_template`: the model's chat template was applied; `opens_thought`: it begins a thought. `import_ns` is what the
    import of the library took that counted their tokens. `salt` begins synthetic texts, so that no server has them from an earlier run.
    """

    case: Case
    context_tokens: int
    file: PromptFile | None = None
    texts: Sequence[Prompt] = ()
    has_template: bool = False
    opens_thought: bool = False
    import_ns: int = 0
    salt: str = field(default_factory=lambda: secrets.token_hex(2))

    @property
    def queries(self) -> int:
        """Return the fewest queries."""
        return self.case.queries

    @property
    def pass_queries(self) -> int:
        """Return at whose multiples a run ends: a pass of the file, so that a faster model is asked no other prompts; 1 of a long file."""
        return 1 if self.file is None or self._is_long else len(self.file.items)

    @property
    def seconds(self) -> float:
        """Return the shortest timed part: of a long file only the number of queries ends a closed loop, but for a sustained run."""
        is_free = not self._is_long or self.case.rate_per_s is not None or self.case.mode == "sustained"
        return self.case.seconds if is_free else 0.0

    @property
    def _is_long(self) -> bool:
        file = self.file
        return file is not None and not file.has_answers and len(file.items) > MOST_PASS_RATIO * self.case.queries

    @property
    def output_tokens(self) -> int:
        """The most tokens of an answer."""
        return self.case.output_tokens or 0

    def of(self, loaded: LoadedGenerator) -> Prompts:
        """Return the prompts of each query; raises ConfigError if synthetic ones have no room."""
        if self.file:
            return FilePrompts(self.texts, self.case.seed)
        return SyntheticPrompts(loaded, self.case.prompt_tokens or 0, self.case.seed, self.salt)

    def described(self) -> dict[str, Any]:
        """Return the fields of a record that state where the prompts come from."""
        file = self.file
        if file is None:
            return {"prompts": SYNTHETIC}
        return {"prompts": file.name, "prompts_sha256": file.file_sha256}

    def dataset(self, loaded: LoadedGenerator) -> DatasetInfo:
        """Return how the prompts are named in a record: all that must be equal for two runs to have done the same work.

        These are the lengths and the seed, or the file's content, and where they are not the usual ones the type of the cache, speculation,
        the end of a query, and that a server answered.
        """
        case, able, file = self.case, loaded.abilities, self.file
        name = f"synthetic {case.token_lengths}"
        if file:
            template = "chat template" if self.has_template else "no template"
            name = f"{len(file.items)} prompts of {file.name}, {template}, {case.output_tokens} tokens"
        unusual = [
            "" if loaded.text_tokens.size or file else "salted",
            f"kv {loaded.kv_type}" if loaded.kv_type not in (None, USUAL_KV_TYPE) else "",
            f"speculative {loaded.speculative}" if loaded.speculative else "",
            "" if able.ignores_end and not file else "to the end of text",
            "" if able.is_local else "served",
        ]
        name = ", ".join([name, *filter(None, unusual)])
        sha256 = hashlib.sha256(f"{name} {case.seed}{file.sha256 if file else ''}".encode()).hexdigest()
        return DatasetInfo(name=name, sha256=sha256, images=len(file.items) if file else 0)


def prepare(case: Case, options: Options) -> CasePrompts:
    """Return the prompts of a case.

    The length of those of a file only the model's tokeniser knows: it is loaded with a short context to count them.

    Raises:
        EdgemeterError: the file cannot be read or is of no form that is known; the model cannot be loaded.
    """
    output_tokens = case.output_tokens or 0
    if case.prompts is None:
        return CasePrompts(case, (case.prompt_tokens or 0) + output_tokens)
    file = read_prompts(case.prompts, case.subset, case.seed)
    with closing(generators.create(case.runtime)) as generator:
        loaded = generator.load(Path(case.model), options, 1 + output_tokens)
        encoder = PromptEncoder(generator, loaded)
        texts = [encoder.prompt(item.messages) for item in file.items]
        opens_thought = encoder.opens_thought(file.items[0].messages)
        counts = [_tokens(generator, text, item.messages) for text, item in zip(texts, file.items, strict=True)]
    counted = [count for count in counts if count is not None]
    context_tokens = (
        max(counted) + output_tokens if len(counted) == len(counts) else _room(file, output_tokens, loaded.trained_context_tokens)
    )
    return CasePrompts(case, context_tokens, file, texts, encoder.has_template, opens_thought, loaded.import_ns)


def _tokens(generator: Generator, text: Prompt, messages: Sequence[ChatMessage]) -> int | None:
    """Return the tokens of a prompt; None where a server does not count them before it answers."""
    if not isinstance(text, str | Chat):
        return len(text)
    try:
        return len(generator.encode(text if isinstance(text, str) else messages))
    except UnavailableError:
        return None


def _room(file: PromptFile, output_tokens: int, trained_context_tokens: int | None) -> int:
    """Return the most tokens that uncounted prompts can have, in the context that the model was made for; else what any server has."""
    if trained_context_tokens is None:
        return 1 + output_tokens
    longest = max(sum(len(message.text.encode()) + _TEMPLATE_TOKENS for message in item.messages) for item in file.items)
    return min(longest + output_tokens, trained_context_tokens)
