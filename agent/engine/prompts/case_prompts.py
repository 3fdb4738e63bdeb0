"""The prompts of a case, which are synthetic ones or the questions of a file.

The module also names them for a record.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgemeter.agent.contract.case_identity import USUAL_KV_TYPE
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.contract.record_generation import SYNTHETIC
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.prompts.questions import QuestionFile, read_questions
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import Chat, LoadedGenerator, Prompt

# About the most tokens that a chat template adds to a message.
_TEMPLATE_TOKENS = 256


@dataclass(frozen=True, slots=True)
class CasePrompts:
    """The prompts of a case; `file` is None for synthetic ones.

    Synthetic texts begin with the `salt`, so that no server has cached them in an earlier run.
    """

    case: Case
    file: QuestionFile | None = None
    salt: str = field(default_factory=lambda: secrets.token_hex(2))

    @classmethod
    def of_case(cls, case: Case) -> "CasePrompts":
        """Return the prompts of a case; raises ConfigError if its file cannot be read."""
        return cls(
            case,
            None
            if case.questions is None
            else read_questions(case.questions, case.subset, case.seed),
        )

    @property
    def context_tokens(self) -> int:
        """The context length that is enough for every query.

        A token of a question has at least one byte.
        """
        longest = self.case.prompt_tokens or 0
        if self.file:
            longest = _TEMPLATE_TOKENS + max(
                len(question.text.encode()) for question in self.file.questions
            )
        return longest + self.output_tokens

    @property
    def pass_queries(self) -> int:
        """The number of queries in a pass of the file.

        Runs end after whole passes, so that all models are asked the same questions.
        """
        return len(self.file.questions) if self.file else 1

    @property
    def output_tokens(self) -> int:
        """The most tokens of an answer."""
        return self.case.output_tokens or 0

    def of(self, loaded: LoadedGenerator) -> Callable[[int], Prompt]:
        """Return the prompt by the number of a query, always the same.

        The questions of a file come in an order drawn by the seed, repeated, as messages if the
        generator takes messages, else as texts. Warm-up begins at the end of the file.

        Raises:
            ConfigError: synthetic prompts have no room.
        """
        if not self.file:
            prompts = SyntheticPrompts(
                loaded, self.case.prompt_tokens or 0, self.case.seed, self.salt
            )
            return prompts.of
        texts = [self.file.questions[index].text for index in self.file.order(self.case.seed)]
        questions: Sequence[Prompt] = (
            [Chat(text) for text in texts] if loaded.abilities.chats else texts
        )
        return lambda number: questions[number % len(questions)]

    def described(self) -> dict[str, Any]:
        """Return the fields of a record that state where the prompts come from."""
        return (
            {"prompts": self.file.name, "prompts_sha256": self.file.file_sha256}
            if self.file
            else {"prompts": SYNTHETIC}
        )

    def dataset(self, loaded: LoadedGenerator) -> DatasetInfo:
        """Return the data set of a record.

        Its name and hash hold all that must be equal for two runs to have done the same work.

        These are the lengths and the seed, or the file's content; and if they are unusual, the type
        of the cache, speculation, the end of a query, and that the run did not start the server.
        """
        case, able, file = self.case, loaded.abilities, self.file
        name = f"synthetic {case.token_lengths}"
        if file:
            template = "chat template" if able.chats else "no template"
            name = (
                f"{len(file.questions)} questions of {file.name}, {template}, "
                f"{case.output_tokens} tokens"
            )
        unusual = [
            "" if loaded.text_tokens.size or file else "salted",
            f"kv {loaded.kv_type}" if loaded.kv_type not in (None, USUAL_KV_TYPE) else "",
            f"speculative {loaded.speculative}" if loaded.speculative else "",
            "" if able.ignores_end and not file else "to the end of text",
            "" if able.is_local else "served",
        ]
        name = ", ".join([name, *filter(None, unusual)])
        identity = f"{name} {case.seed}{file.sha256 if file else ''}"
        return DatasetInfo(
            name=name,
            sha256=hashlib.sha256(identity.encode()).hexdigest(),
            images=len(file.questions) if file else 0,
        )
