"""The answer of a server to one query: its pieces stamped as they come, and counted as the server counts them."""

from dataclasses import replace

from edgemeter.agent.base.errors import AnswerError, one_line
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER
from edgemeter.agent.generators import LONGEST_STEP, THOUGHT_END, Generated, GeneratorAbilities, Stamp
from edgemeter.agent.generators.adapter import shared_out
from edgemeter.agent.generators.server_lines import Part

_KEPT = (
    "ended", "prompt_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "own", "drafted_tokens", "accepted_tokens",
)  # fmt: skip


class ReceivedAnswer:
    """The received part of one query's answer.

    A piece with text is stamped as one token, or as those that its line counts. Where only the total is known, which comes last, the tokens
    are shared out among the pieces when the answer has ended: its end is the last piece with text, however late the count comes.
    """

    def __init__(self, stamp: Stamp, limit: int) -> None:
        self._stamp = stamp
        self._most = limit
        self._stamped = 0
        # Characters of each stamped piece.
        self._sizes: list[int] = []
        self._pieces: list[str] = []
        self._thoughts: list[str] = []
        self._last = Part()
        self._is_counted_by_line = False
        self._ends_with_first = False
        self.is_done = False

    @property
    def output_tokens(self) -> int | None:
        """The total that the server states."""
        return self._last.output_tokens

    @property
    def hidden_reasoning_tokens(self) -> int:
        """The tokens of thoughts that the server did not stream, as it states."""
        is_streamed = any(self._thoughts) or THOUGHT_END in self._text()
        return 0 if is_streamed else min(self._last.reasoning_tokens or 0, max((self._last.output_tokens or 0) - 1, 0))

    @property
    def cached_tokens(self) -> int:
        """The prompt tokens that the server took from its cache, as it states."""
        return self._last.cached_tokens or 0

    @property
    def speculative(self) -> str | None:
        """How the server guesses tokens: `draft` where it counts them, None where it does not."""
        return "draft" if self._last.drafted_tokens else None

    def take(self, part: Part) -> None:
        """Stamp what is new in `part`; raises AnswerError if it is an error of the server, or more than was asked for."""
        if part.error is not None:
            raise AnswerError(
                f"the server failed after {self._stamped} tokens: {one_line(part.error)}; read its log", kind="error in the stream"
            )
        self._is_counted_by_line |= part.total_tokens is not None
        new = part.total_tokens - self._stamped if part.total_tokens is not None else int(part.has_output)
        if new > 0:
            if self._stamped + new > self._most:
                raise TooLongError(f"the server sent more than the {self._most} tokens that were asked for: use another endpoint")
            self._stamp(new)
            self._stamped += new
            self._ends_with_first = not self._sizes and part.ended is not None
            self._sizes.append(len(part.thought) + len(part.text))
        self._pieces.append(part.text)
        self._thoughts.append(part.thought)
        reported = {name: value for name in _KEPT if (value := getattr(part, name)) is not None}
        self._last = replace(self._last, **reported)

    def check(self) -> None:
        """Return when the answer is whole; raises AnswerError if it broke off, has no token, or more than were asked for."""
        counted = self._last.output_tokens
        if self._last.ended is None and not self.is_done:
            raise AnswerError(
                f"the server stopped in the middle of an answer, after {self._stamped} tokens: read its log", kind="stopped in the middle"
            )
        if counted is not None and counted - self.hidden_reasoning_tokens > self._most:
            raise TooLongError(f"the server counts {counted} tokens where {self._most} were asked for: use another endpoint")
        if not self._stamped:
            raise AnswerError(
                "the server ended its answer without a token: check the model, and that the prompt is not empty to it", kind=EMPTY_ANSWER
            )

    def _shared_tokens(self) -> tuple[int, ...]:
        """Return the tokens of each piece by the server's total; empty where each is what it was stamped as.

        The token that ends a text shows none and is not timed. Others without a piece of their own are in the pieces by their length, but
        for hidden reasoning, which came before the first.
        """
        counted, hidden = self._last.output_tokens, self.hidden_reasoning_tokens
        if counted is None or self._is_counted_by_line:
            return ()
        stamped_or_end = self._stamped + (self._last.ended == "end_of_text")
        is_one_each = self._stamped <= counted - hidden <= stamped_or_end
        if is_one_each and not hidden:
            return ()
        first, *later = (1,) * self._stamped if is_one_each else shared_out(counted - hidden, self._sizes)
        return (hidden + first, *later)

    def _has_several(self, counted: int | None) -> bool:
        """Return whether the answer has more tokens than one step gives; uncounted ones are told by their words."""
        tokens = len(self._text().split()) if counted is None else counted - self.hidden_reasoning_tokens
        return tokens > (LONGEST_STEP if self.speculative else 1)

    def _text(self) -> str:
        """Return the text; the server has cut off what marks the end of a thought."""
        thought, text = "".join(self._thoughts), "".join(self._pieces)
        return f"{thought}{THOUGHT_END}{text}" if thought else text

    def generated(self, abilities: GeneratorAbilities) -> Generated:
        """Return the answer; raises AnswerError if the server told its count when it was loaded, and not now."""
        last = self._last
        if abilities.counts == "usage" and last.output_tokens is None:
            raise AnswerError(
                "the server left out how many tokens it generated, which it told before: ask again, or read its log", kind="no count"
            )
        stamped_tokens = self._shared_tokens()
        output_tokens = sum(stamped_tokens) or self._stamped
        return Generated(
            tokens=(),
            text=self._text(),
            ended=last.ended or "length",
            prompt_tokens=last.prompt_tokens,
            output_tokens=output_tokens,
            cached_tokens=last.cached_tokens,
            own=last.own,
            stamped_tokens=stamped_tokens,
            drafted_tokens=last.drafted_tokens,
            accepted_tokens=last.accepted_tokens,
            unstreamed=_ONE_PIECE if self._ends_with_first and self._has_several(last.output_tokens) else None,
            hidden_reasoning_tokens=self.hidden_reasoning_tokens or None,
        )


class TooLongError(AnswerError):
    """The server sent more tokens than were asked for: it does not know the field that limits them."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="too many tokens")


_ONE_PIECE = "the server answers in one piece: it, or a proxy before it, does not stream"
