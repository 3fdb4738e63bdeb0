"""The perplexity of a language model on a text, in a sandboxed process of its own: one job on standard input, one answer."""

import signal
from contextlib import closing
from pathlib import Path

import msgspec

from edgemeter.agent import generators
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.engine.confinement import grant_for
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.quality.perplexity import Perplexity
from edgemeter.agent.quality.scoring import ScoredText, score_generator
from edgemeter.agent.runtimes import Options


class _TextJob(msgspec.Struct, frozen=True, kw_only=True):
    case: Case
    text: str
    context_tokens: int


class _ScoredText(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    perplexity: Perplexity


def text_perplexity(case: Case, text: str, context_tokens: int) -> Perplexity:
    """Return the perplexity of the case's model on `text`, with the case's settings, in chunks of `context_tokens`.

    Raises:
        UnavailableError: the engine gives no likelihoods, or is not installed.
        ConfigError: the text is too short, or the model has no room for such chunks.
        MeasurementError: the engine failed.
    """
    work = _TextJob(case=case, text=text, context_tokens=context_tokens)
    advice = f"the process that scored {Path(case.model).name!r}", "use a smaller model, or leave the perplexity out (--text none)"
    return ask("edgemeter.agent.engine.text_scoring", [], job.encode(work), _ScoredText, grant_for(case), advice).perplexity


def _score(work: _TextJob) -> _ScoredText:
    case = work.case
    options = Options(threads=case.threads, backend=case.backend, extra=case.options, sha256=case.sha256)
    with closing(generators.create(case.runtime)) as generator:
        loaded = generator.load(Path(case.model), options, work.context_tokens)
        return _ScoredText(perplexity=score_generator(generator, loaded, ScoredText(work.text, work.context_tokens)))


def main() -> None:
    """Score the job on standard input, and write the answer to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job.answer_one(_TextJob, _score, lambda error, work: job.failure(error, work.case))


if __name__ == "__main__":
    main()
