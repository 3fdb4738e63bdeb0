"""The answer of a server to one query: its pieces with their times, and the server's counts."""

from collections.abc import Sequence

from edgemeter.agent.base.errors import AnswerError, one_line
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER
from edgemeter.agent.generators import (
    LONGEST_STEP,
    THOUGHT_END,
    Ended,
    Generated,
    GeneratorAbilities,
    Stamp,
)
from edgemeter.agent.generators.server_lines import Line, Timings, Usage


class ReceivedAnswer:
    """The received part of one query's answer.

    A piece with text is stamped as one token, or with the count in its line. If only the total is
    known, which comes last, the tokens are distributed over the pieces at the end. The last piece
    with text is the end of the answer, even if the count comes later.
    """

    def __init__(self, stamp: Stamp, limit: int) -> None:
        self._stamp = stamp
        self._most = limit
        self._stamped = 0
        # The number of characters in each stamped piece.
        self._sizes: list[int] = []
        self._pieces: list[str] = []
        self._thoughts: list[str] = []
        self._ended: Ended | None = None
        self._usage: Usage | None = None
        self._timings: Timings | None = None
        self._ends_with_first = False
        self.is_done = False

    @property
    def output_tokens(self) -> int | None:
        """The server's total; proxies that do not count report 0."""
        return (self._usage and self._usage.output_tokens) or None

    @property
    def hidden_reasoning_tokens(self) -> int:
        """The number of reasoning tokens that the server reports but did not stream."""
        is_streamed = any(self._thoughts) or THOUGHT_END in self._text()
        reasoning_tokens = self._usage.reasoning_tokens if self._usage else 0
        return 0 if is_streamed else min(reasoning_tokens, max((self.output_tokens or 0) - 1, 0))

    @property
    def cached_tokens(self) -> int | None:
        """The number of prompt tokens from the server's cache, None if it does not report them."""
        if self._timings and self._timings.cache_n is not None:
            return self._timings.cache_n
        details = self._usage and self._usage.prompt_tokens_details
        return details.cached_tokens if details else None

    @property
    def drafts(self) -> tuple[int | None, int | None]:
        """The numbers of guessed and accepted tokens, None if the server does not report them."""
        if self._timings and self._timings.draft_n:
            return self._timings.draft_n, self._timings.draft_n_accepted
        return self._usage.drafts() if self._usage else (None, None)

    def take(self, line: Line) -> None:
        """Stamp new tokens in `line`.

        Raises:
            AnswerError: it is an error of the server, or has more tokens than asked for.
        """
        if line.error is not None:
            raise AnswerError(
                f"the server failed after {self._stamped} tokens: "
                f"{one_line(line.error)}; read its log",
                kind="error in the stream",
            )
        choice, timings = line.choice, line.timings
        text, thought = choice.new_text, choice.thought
        new = timings.predicted_n - self._stamped if timings else int(choice.has_output)
        if new > 0:
            if self._stamped + new > self._most:
                raise TooLongError(
                    f"the server sent more than the {self._most} tokens that were asked for: use "
                    "another endpoint"
                )
            self._stamp(new)
            self._stamped += new
            self._ends_with_first = not self._sizes and choice.finish_reason is not None
            self._sizes.append(len(thought) + len(text))
        self._pieces.append(text)
        self._thoughts.append(thought)
        if choice.finish_reason is not None:
            self._ended = "length" if choice.finish_reason == "length" else "end_of_text"
        self._usage, self._timings = line.usage or self._usage, timings or self._timings

    def check(self) -> None:
        """Check that the answer is complete.

        Raises:
            AnswerError: it broke off, has no token, or more than asked for.
        """
        counted = self.output_tokens
        if self._ended is None and not self.is_done:
            raise AnswerError(
                f"the server stopped in the middle of an answer, after {self._stamped} tokens: "
                "read its log",
                kind="stopped in the middle",
            )
        if counted is not None and counted - self.hidden_reasoning_tokens > self._most:
            raise TooLongError(
                f"the server counts {counted} tokens where {self._most} were asked for: use "
                "another endpoint"
            )
        if not self._stamped:
            raise AnswerError(
                "the server ended its answer without a token: check the model, and that the "
                "prompt is not empty to it",
                kind=EMPTY_ANSWER,
            )

    def _shared_tokens(self) -> tuple[int, ...]:
        """Return the tokens of each piece by the server's total; empty if the stamps were right.

        The token that ends a text has no piece, and is not timed. Other tokens without a piece are
        distributed by the lengths of the pieces; hidden reasoning came before the first piece.
        """
        counted, hidden = self.output_tokens, self.hidden_reasoning_tokens
        if counted is None or self._timings:
            return ()
        stamped_or_end = self._stamped + (self._ended == "end_of_text")
        is_one_each = self._stamped <= counted - hidden <= stamped_or_end
        if is_one_each and not hidden:
            return ()
        first, *later = (
            (1,) * self._stamped if is_one_each else shared_out(counted - hidden, self._sizes)
        )
        return (hidden + first, *later)

    def _has_several(self, counted: int | None) -> bool:
        """Return whether the answer has more tokens than one step gives.

        Without a count, words are counted.
        """
        tokens = (
            len(self._text().split()) if counted is None else counted - self.hidden_reasoning_tokens
        )
        return tokens > (LONGEST_STEP if self.drafts[0] else 1)

    def _text(self) -> str:
        """Return the text, with the mark at the end of reasoning, which the server removes."""
        thought, text = "".join(self._thoughts), "".join(self._pieces)
        return f"{thought}{THOUGHT_END}{text}" if thought else text

    def generated(self, abilities: GeneratorAbilities) -> Generated:
        """Return the answer.

        Raises:
            AnswerError: the server reported a count when it was loaded, but not now.
        """
        if abilities.counts == "usage" and self.output_tokens is None:
            raise AnswerError(
                "the server did not report the number of generated tokens, as it did before: run "
                "again, or read its log",
                kind="no count",
            )
        stamped_tokens = self._shared_tokens()
        return Generated(
            text=self._text(),
            ended=self._ended or "length",
            prompt_tokens=(self._usage and self._usage.prompt_tokens) or None,
            output_tokens=sum(stamped_tokens) or self._stamped,
            cached_tokens=self.cached_tokens,
            stamped_tokens=stamped_tokens,
            drafted_tokens=self.drafts[0],
            accepted_tokens=self.drafts[1],
            unstreamed=_ONE_PIECE
            if self._ends_with_first and self._has_several(self.output_tokens)
            else None,
            hidden_reasoning_tokens=self.hidden_reasoning_tokens or None,
        )


class TooLongError(AnswerError):
    """The server sent more tokens than asked for.

    So it does not know the field that limits them.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="too many tokens")


_ONE_PIECE = "the server answers in one piece: it, or a proxy before it, does not stream"


def shared_out(tokens: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the distribution of tokens over pieces of these sizes, in proportion.

    The first and the last have at least one.
    """
    total = sum(sizes)
    if len(sizes) == 1 or not total:
        return (*[0] * (len(sizes) - 1), tokens) if len(sizes) > 1 else (tokens,)
    reached = [round(tokens * sum(sizes[: index + 1]) / total) for index in range(len(sizes))]
    # Both ends are times of tokens.
    reached = [min(max(count, 1), max(tokens - 1, 1)) for count in reached[:-1]] + [tokens]
    return tuple(count - before for before, count in zip([0, *reached], reached, strict=False))
