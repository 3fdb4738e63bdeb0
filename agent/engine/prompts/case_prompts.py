"""The prompts of a case: read before the model is loaded, made ready for it afterwards, and named for the record."""

import hashlib
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgemeter.agent import generators
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_identity import USUAL_KV_TYPE
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.conversations import ANSWER_RATIO, Conversations, FileDialogue, SyntheticDialogue, scripts_of
from edgemeter.agent.engine.prompts.file_prompts import FilePrompts, PromptEncoder, Template
from edgemeter.agent.engine.prompts.prompt_file import PromptFile, read_prompts
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.prompts.trace import Trace, TracePrompts, read_trace
from edgemeter.agent.generators import ChatMessage, Generator, LoadedGenerator
from edgemeter.agent.runtimes import Options


@dataclass(frozen=True, slots=True)
class CasePrompts:
    """What a case asks: of a file, by a trace, or synthetic where there is neither. `import_ns` is what the sizing's import took."""

    case: Case
    file: PromptFile | None = None
    trace: Trace | None = None
    context_tokens: int = 0
    import_ns: int = 0

    @property
    def queries(self) -> int:
        """Return the fewest queries: a question with right answers is asked once at least, a conversation is not cut short."""
        fewest = max(self.case.queries, len(self.file.questions) if self.file and not self.case.turns else 0)
        return -(-fewest // (self.case.turns or 1)) * (self.case.turns or 1)

    @property
    def source(self) -> str:
        """Return where the prompts come from, as the record names it."""
        name = f"file {self.file.name}" if self.file else f"trace {self.trace.name}" if self.trace else "synthetic"
        return f"{name}, {self.case.turns} turns" if self.case.turns else name

    def scripts(self) -> list[list[ChatMessage]]:
        """Return the messages of each prompt of the file, of conversations what the user says in turn."""
        if self.file is None:
            return []
        return scripts_of(self.file, self.case.turns) if self.case.turns else [list(item.messages) for item in self.file.items]

    def prompts(self, generator: Generator, loaded: LoadedGenerator) -> tuple[Prompts, Template | None]:
        """Return the prompts for a loaded model, and the template that those of a file went through.

        Raises:
            ConfigError: the model has no such template, or cannot keep the beginning of a conversation.
        """
        case = self.case
        if case.prefix_cache == "on" and not loaded.abilities.keeps_prefix:
            raise ConfigError(f"{loaded.package} drops its cache before each query here: give prefix_cache off")
        encoder = PromptEncoder(generator, loaded, case.template) if self.file else None
        synthetic = None if self.file else SyntheticPrompts(loaded, case.prompt_tokens or 0, case.seed)
        template = encoder.template if encoder else None
        if case.turns:
            dialogue = (
                FileDialogue(encoder, self.scripts(), case.turns)
                if encoder
                else SyntheticDialogue(generator, synthetic, len(loaded.first_tokens))  # type: ignore[arg-type]
            )
            return Conversations(dialogue, case.turns, keeps_prefix=case.prefix_cache == "on"), template
        if self.file and encoder:
            return FilePrompts(self.file, encoder), template
        assert synthetic is not None  # noqa: S101
        return (TracePrompts(self.trace, synthetic) if self.trace else synthetic), None

    def dataset(self, loaded: LoadedGenerator, template: Template | None, *, ignores_end: bool) -> DatasetInfo:
        """Return how the prompts are named in a record: all that must be equal for two runs to have done the same work.

        These are the lengths and the seed, or the file, and where they are not the usual ones the type of the cache, speculation, the end
        of a query, the turns, and that a server answered.
        """
        case, able = self.case, loaded.abilities
        lengths = f"synthetic {case.prompt_tokens}+{case.output_tokens} tokens"
        if self.file:
            lengths = f"{self.source}, template {template}, {case.output_tokens} tokens"
        if self.trace:
            lengths = f"{self.source}, {case.trace_speed:g} times as fast"
        unusual = [
            "" if self.file or not case.turns else f"{case.turns} turns",
            f"prefix cache {case.prefix_cache}" if case.turns else "",
            f"kv {loaded.kv_type}" if loaded.kv_type not in (None, USUAL_KV_TYPE) else "",
            f"speculative {loaded.speculative}" if loaded.speculative else "",
            "" if ignores_end else "to the end of text",
            "" if able.is_local else "served",
        ]
        name = ", ".join([lengths, *filter(None, unusual)])
        content = self.file.sha256 if self.file else self.trace.sha256 if self.trace else ""
        sha256 = hashlib.sha256(f"{name} {case.seed}{content and f' {content}'}".encode()).hexdigest()
        items = len(self.file.items) if self.file else 0
        return DatasetInfo(name=name, sha256=sha256, images=items, annotated=bool(self.file and self.file.questions))


def read_case(case: Case, options: Options) -> CasePrompts:
    """Return the prompts of a case with the context that they need.

    How long the prompts of a file are only the model's tokeniser knows: unless the case says so, it is loaded once with a short context
    to count them, before the load that counts.

    Raises:
        EdgemeterError: a file cannot be read or is of no form that is known; the model cannot be loaded.
    """
    output_tokens, turns = case.output_tokens or 0, case.turns or 1
    if case.trace:
        trace = read_trace(Path(case.trace))
        longest = max(request.output_tokens for request in trace.requests)
        sized = msgspec.structs.replace(case, output_tokens=longest, prompt_tokens=max(request.input_tokens for request in trace.requests))
        return CasePrompts(sized, trace=trace, context_tokens=trace.longest_tokens)
    if case.prompts is None:
        return CasePrompts(case, context_tokens=((case.prompt_tokens or 0) + output_tokens) * turns)
    prompts = CasePrompts(case, file=read_prompts(case.prompts, case.subset, case.seed))
    answers = output_tokens * (1 if turns == 1 else turns * ANSWER_RATIO)
    if case.prompt_tokens:
        return replace(prompts, context_tokens=case.prompt_tokens + answers)
    with closing(generators.create(case.runtime)) as generator:
        loaded = generator.load(Path(case.model), options, 1 + output_tokens)
        encoder = PromptEncoder(generator, loaded, case.template)
        longest = max(encoder.tokens(messages) for messages in prompts.scripts())
        trained = loaded.trained_context_tokens
        # Of a text that only a server can count, the bytes are far more than its tokens.
        is_counted = not isinstance(encoder.prompt(prompts.scripts()[0]), str | generators.Chat)
        needed = longest + answers if is_counted or trained is None else min(longest + answers, trained)
        return replace(prompts, context_tokens=needed, import_ns=loaded.import_ns)
