"""Facts about language models measured in turn: two answers on speed, perplexity, and what is not compared; no test runs a model."""

import msgspec
import pytest

from edgemeter.agent.base.decision import CORRECT_ENERGY, TOKEN_ENERGY, TPOT, TTFT
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_generation import TokenLengths
from edgemeter.agent.quality.perplexity import Perplexity
from edgemeter.agent.session import in_turn, session, turn_figures
from tests.fixtures.record_factory import make_generation, make_generation_energy, make_latency, make_record
from tests.fixtures.replay_case import replay_case

BENCH = in_turn.Bench(session.DeviceIdentity("bench", "lab"), {}, "no sensor here", lambda _: None)
TEXT = {"rule": "llama-perplexity", "context_tokens": 512, "bos_token": 1, "chunks": 4, "counted_tokens": 1020, "text_sha256": "a" * 64}


def language_run(ttft_ms=100.0, tpot_ms=10.0, tokenizer="b" * 64, early=0, token_mj=None, accuracy=None, **changes):
    """Return a record of a language model; with an energy of `token_mj` a token, and what its answers scored."""
    fields = {
        "ttft": msgspec.structs.replace(make_latency(), p50_ms=ttft_ms),
        "tpot": msgspec.structs.replace(make_latency(), p50_ms=tpot_ms),
        "prompt_tokens": 512, "output_tokens": 128, "ended_early": early,
        "energy": make_generation_energy(output_token_gross_mj=token_mj) if token_mj else None,
    }  # fmt: skip
    generation = make_generation(**(fields | changes))
    model = msgspec.structs.replace(generation.model, tokenizer_sha256=tokenizer)
    generation = msgspec.structs.replace(generation, model=model)
    energy = {} if token_mj else {"energy": None, "reasons": {"energy": "no sensor here"}}
    return make_record(generation=generation, latency=make_latency(p50_ms=ttft_ms + 127 * tpot_ms), accuracy=accuracy, **energy)


def exact_match(value):
    """Return the accuracy of answers to the same questions."""
    return Accuracy(metric="exact_match", value=value, images=64, dataset_sha256="c" * 64, low=value - 0.05, high=value + 0.05)


def scored(value, losses, **changes):
    """Return the perplexity of one file on the text."""
    fields = {"value": value, "standard_error": 0.01, "bits_per_byte": value / 3, "text_tokens": 2100, "chunk_losses": losses}
    return Perplexity(**{**TEXT, **fields, **changes})


@pytest.fixture
def compare(monkeypatch, tmp_path):
    """Return a comparison of language models whose runs come from functions of the round; `scores` are their perplexities, or errors."""

    def compared(*sides, scores=(), rounds=10, settings=({}, {}, {})):
        lengths = {"prompt_tokens": 512, "output_tokens": 128}
        cases = [
            msgspec.structs.replace(replay_case(tmp_path, f"side{n}", 1.0), **(lengths | changes))
            for n, changes in zip(range(len(sides)), settings, strict=False)
        ]
        by_model = dict(zip([case.model for case in cases], scores, strict=False))

        def measure(_suite, _identity, _sensors, _why, _on_event, _keep, plan):
            for case, n in plan:
                outcome = sides[int(case.model[-13])](n)
                plan.note(outcome, 1.0)
                yield outcome

        def score(case, _text, _context_tokens):
            if isinstance(by_model[case.model], Exception):
                raise by_model[case.model]
            return by_model[case.model]

        monkeypatch.setattr(session, "measure", measure)
        monkeypatch.setattr(turn_figures, "text_perplexity", score)
        return in_turn.measure_in_turn(cases, rounds, BENCH, text="a text" if scores else None)

    return compared


def absent(comparison):
    """Return why figures are not compared, by their names."""
    return {difference.figure: difference.note for difference in comparison.contrasts[0].differences if difference.change is None}


def test_prefill_and_decoding_are_two_answers_and_perplexity_is_stated(compare):
    """A file of four bits decodes faster and prefills alike; each claim has its interval, the perplexity both values."""
    comparison = compare(
        lambda n: language_run(100.0, 13.0 + 0.01 * n, token_mj=130 + 0.1 * n),
        lambda n: language_run(100.0, 10.0 - 0.01 * n, token_mj=100 - 0.1 * n),
        scores=(scored(1.496, (0.40, 0.41, 0.39, 0.42)), scored(1.478, (0.388, 0.397, 0.378, 0.407))),
    )
    (contrast,) = comparison.contrasts
    assert contrast.sentence == (
        "B prefills as fast as A within 3% (pairs taken as independent), decodes 1.30 times as fast (95% 1.29 to 1.32) and costs "
        "23.3% less energy per token (95% 22.7 to 24.0%); perplexity 1.478 against 1.496 (95% of their ratio 0.987 to 0.988)"
    )
    assert contrast.decode.pairs == contrast.prefill.pairs == 5
    assert len(comparison.runs) == 10
    assert comparison.most_runs == 20


def test_other_lengths_are_not_compared(compare):
    """Other outputs leave the prefill; other prompts leave nothing but the perplexity; both are stated with the lengths."""
    comparison = compare(lambda n: language_run(100.0 + n), lambda n: language_run(150.0 + n, output_tokens=64))
    assert absent(comparison)[TPOT] == absent(comparison)[TOKEN_ENERGY] == "outputs of 64 against 128 tokens are other work"
    assert comparison.contrasts[0].sentence.startswith("B prefills 0.6")
    assert comparison.contrasts[0].latency.ratio is None
    comparison = compare(lambda _: language_run(), lambda _: language_run(prompt_tokens=256))
    assert set(absent(comparison)) == {TTFT, TPOT, TOKEN_ENERGY, "perplexity"}
    assert comparison.contrasts[0].sentence == "nothing of B and A could be compared"


def test_early_ends_are_counted_and_their_energy_is_not_compared(compare):
    """The time of a token is that of the tokens that came; shorter answers share their prompt's energy among fewer tokens."""
    lengths = TokenLengths(min_tokens=3, mean_tokens=64.0, max_tokens=128)
    shorter = {"early": 3, "output_lengths": lengths, "token_mj": 9.0}
    comparison = compare(lambda n: language_run(tpot_ms=10 + 0.01 * n, token_mj=9.0), lambda _: language_run(**shorter), rounds=3)
    assert absent(comparison)[TOKEN_ENERGY] == "answers of 64 against 128 tokens on average are other work: compare TPOT"
    assert TPOT not in absent(comparison)
    assert comparison.contrasts[0].latency.ratio is None
    assert "9 of 192 queries of B ended early" in comparison.contrasts[0].sentence


def test_a_side_without_likelihoods_leaves_the_perplexity_of_the_other(compare):
    """The reason is beside the table; speed is compared."""
    scores = scored(1.5, (0.4, 0.5)), UnavailableError("llama-server gives no likelihoods of a text")
    comparison = compare(lambda n: language_run(100 + n), lambda n: language_run(100 + n), scores=scores, rounds=3)
    assert absent(comparison)["perplexity"] == "llama-server gives no likelihoods of a text"
    assert [side.perplexity and side.perplexity.value for side in comparison.sides] == [1.5, None]
    assert absent(compare(lambda _: language_run(), lambda _: language_run(), rounds=3))["perplexity"] == turn_figures.NO_TEXT


def test_a_language_model_is_not_compared_with_another_kind(compare):
    """It is refused before anything runs."""
    settings = ({}, {"prompt_tokens": None, "output_tokens": None})
    with pytest.raises(ConfigError, match=r"generates text and side1.* does not: compare language models with"):
        compare(lambda _: language_run(), lambda _: language_run(), settings=settings)


def test_the_same_energy_for_fewer_right_answers_costs_more_per_right_one(compare):
    """Half of the questions answered against two fifths, a request of the same energy: a quarter more energy a right answer."""
    comparison = compare(*[lambda _, v=v: language_run(token_mj=9.0, accuracy=exact_match(v)) for v in (0.5, 0.4)], rounds=3)
    figures = {entry.figure: entry for entry in comparison.contrasts[0].differences}
    correct = figures[CORRECT_ENERGY]
    assert (correct.change, correct.a) == (pytest.approx(1.25), pytest.approx(comparison.sides[0].gross_mj / 0.5))
    assert "costs 25.0% more energy per correct answer" in comparison.contrasts[0].sentence
    assert figures["accuracy_value"].change == pytest.approx(-0.1)


def test_the_same_file_is_the_same_work_whatever_tokens_it_makes(compare):
    """Models of other tokenizers are asked the same questions; that their answers end is no doubt; none right is a reason."""
    file = {"prompts": "questions.jsonl", "prompts_sha256": "e" * 64, "early": 3, "token_mj": 9.0}
    comparison = compare(
        lambda n: language_run(100.0 + n, accuracy=exact_match(0.5), **file),
        lambda n: language_run(50.0 + n, accuracy=exact_match(0.0), prompt_tokens=300, **file),
    )
    assert comparison.contrasts[0].sentence.startswith("B prefills 1.9")
    assert "ended early" not in comparison.contrasts[0].sentence
    assert absent(comparison)[CORRECT_ENERGY] == "no answer of B was right"


def test_a_faster_model_that_gets_further_into_a_file_is_asked_other_questions(compare):
    """Whole passes, or as many in one order, are the same questions; the first 11 and the first 22 are not: no figure compares."""

    def run(count, **changes):
        record = language_run(token_mj=9.0, prompts="questions.jsonl", prompts_sha256="e" * 64)
        return msgspec.structs.replace(record, latency=make_latency(count=count), **changes)

    for queries, are_same in [((80, 160), True), ((11, 11), True), ((11, 22), False), ((80, 88), False)]:
        comparison = compare(lambda _, queries=queries: run(queries[0]), lambda _, queries=queries: run(queries[1]), rounds=2)
        assert set(absent(comparison)) == ({"perplexity"} if are_same else {TTFT, TPOT, TOKEN_ENERGY, "perplexity"})
    # Another order of a file is other questions; a repeat of the same case has the same order.
    assert TTFT in absent(compare(lambda _: run(11, seed=1), lambda _: run(11, seed=2), rounds=2))
    assert TTFT not in absent(compare(lambda _: run(11, seed=1, repeat=0), lambda _: run(11, seed=2, repeat=1), rounds=2))


def test_of_three_quantisations_the_fastest_is_taken_that_keeps_the_perplexity(compare):
    """The smallest decodes fastest, but its perplexity is a tenth above the first's: the one between is taken."""
    losses = [(0.40, 0.41), (0.41, 0.42), (0.50, 0.51)]
    comparison = compare(
        *[lambda _, ms=ms: language_run(100.0, ms, token_mj=ms) for ms in (13.0, 10.0, 8.0)],
        scores=[scored(value, chunks) for value, chunks in zip((10.0, 10.1, 11.0), losses, strict=True)],
        rounds=3,
    )
    assert comparison.pick.name == "B"
    assert comparison.pick.refused == {"C": "perplexity 11.00 is 1.10 times 10.00, above 1.05"}


def test_of_other_tokenizers_the_limit_is_on_the_perplexity_of_the_firsts_tokens(compare):
    """4.5 bytes a token of A, of 3.6 bits: 3.75% more bits per byte are 9.8% more perplexity of such a token, 1.25% are 3.2%."""
    comparison = compare(
        *[lambda _, ms=ms, key=key: language_run(100.0, ms, tokenizer=key * 64) for ms, key in ((13.0, "a"), (10.0, "b"), (8.0, "c"))],
        scores=[
            scored(2**3.6, (2.5,), bits_per_byte=0.8, text_tokens=2000),
            scored(15.0, (2.7,), bits_per_byte=0.81, text_tokens=1900),
            scored(9.0, (2.2,), bits_per_byte=0.83, text_tokens=2400),
        ],
        rounds=3,
    )
    assert [contrast.differences[-1].change for contrast in comparison.contrasts] == pytest.approx([2**0.045, 2**0.135])
    assert comparison.pick.refused == {"C": "bits per byte 0.8300 against 0.8000 are 1.10 times the perplexity, above 1.05"}


def test_an_older_score_counts_where_the_newest_run_has_none(compare):
    """One failed answer of the last round takes no side's score away, and so not the gate."""
    comparison = compare(
        lambda n: language_run(100.0, 13.0 + 0.01 * n, accuracy=exact_match(0.8)),
        lambda n: language_run(100.0, 10.0 + 0.01 * n, accuracy=exact_match(0.4) if n < 2 else None),
        rounds=3,
    )
    (accuracy,) = [difference for difference in comparison.contrasts[0].differences if difference.figure == "accuracy_value"]
    assert (accuracy.a, accuracy.b) == (0.8, 0.4)
    assert comparison.pick.name == "A"


def test_a_refused_side_changes_no_perplexity_of_the_others(monkeypatch, tmp_path):
    """A model that does not fit into memory is not scored, and does not make the chunks shorter."""
    cases = [
        msgspec.structs.replace(replay_case(tmp_path, f"side{n}", 1.0), prompt_tokens=64, output_tokens=64, options=options)
        for n, options in enumerate(({}, {}, {}))
    ]
    scored_cases = []

    def score(case, _text, context_tokens):
        scored_cases.append((case.model, context_tokens, dict(case.options)))
        return scored(1.5, (0.4, 0.41))

    monkeypatch.setattr(turn_figures, "text_perplexity", score)
    texts = turn_figures.score_texts(cases, "a text", {2: ConfigError("needs 9 GB")})
    assert texts[2] == "needs 9 GB"
    assert [getattr(text, "value", None) for text in texts] == [1.5, 1.5, None]
    assert scored_cases == [(cases[0].model, 512, {}), (cases[1].model, 512, {})]
