"""Facts about `edgemeter.agent.verdict.run_rules`, with two runs for each rule.

One run violates the rule, and the other just does not.
"""

from typing import Any

import msgspec

from edgemeter.agent.contract.model_card import UNSURE_FAMILY, Guess
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_conditions import Condition, RuntimeInfo, Verdict
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.engine.job import MeasuredRun, Scheduling
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_accuracy, make_environment, make_generation
from tests.fixtures.rows import table_row

DESCRIBED = {
    "name": "llama",
    "package": "xllamacpp",
    "version": "1",
    "backend": "cpu",
    "threads": 4,
}


def runtime(**changes: Any) -> RuntimeInfo:
    return RuntimeInfo(**(DESCRIBED | changes))


def generating(
    facts: dict[str, str] | None = None, backend: str = "cpu", **changes: Any
) -> MeasuredRun:
    """Return a sound run that generates text, with these changes.

    It has 512 prompt tokens at 5,120/s and 10 more at 100/s, by a model of a million weights.
    """
    return measured(
        generation=make_generation(**changes),
        runtime=runtime(facts=facts or {}, backend=backend),
        scheduling=Scheduling(window_ms=6000.0, cores=4),
    )


def judged(run: MeasuredRun, **board: Any) -> Verdict:
    raspberry_pi = {"board": "Raspberry Pi 5 Model B Rev 1.0", "arch": "aarch64"}
    environment = msgspec.structs.replace(make_environment(), **(raspberry_pi | board))
    return judge(Facts(run, [Condition(when="before", clock_max_hz=2e9)], environment))


def violated(run: MeasuredRun, **board: Any) -> set[str]:
    verdict = judged(run, **board)
    return {violation.rule for violation in (*verdict.violations, *verdict.notes)}


def test_a_sound_run_violates_no_rule():
    """The factory builds the base that the other tests change."""
    assert violated(generating()) == set()


def test_a_rule_on_text_is_violated_by_one_run_and_just_not_by_another():
    """The boundary is where the rule says."""
    for rule, violating, just_not in [
        ("cached-prompt", {"cached_tokens": 2}, {"cached_tokens": 1}),
        (
            "cached-prompt",
            {"cached_tokens": 22, "template_tokens": 20},
            {"cached_tokens": 21, "template_tokens": 20},
        ),
        ("ended-early", {"ended_early": 1}, {"ended_early": 0}),
        ("not-reported", {"cached_tokens": None}, {"cached_tokens": 0}),
        ("not-reported", {"counts": "estimated"}, {"counts": "usage"}),
    ]:
        with table_row(rule, violating):
            assert violated(generating(**violating)) == {rule}
            assert violated(generating(**just_not)) == set()


def test_failed_queries_violate_a_rule_from_a_hundredth_on():
    """An empty answer to a question from a file is an answer, and is scored."""
    for prompts, failures, is_violated in [
        ("synthetic", {"http 429": 3}, True),
        ("synthetic", {"http 429": 2}, False),
        ("file", {"no token": 3, "timeout": 3}, True),
        ("file", {"no token": 3, "timeout": 2}, False),
    ]:
        with table_row(prompts, failures):
            run = generating(prompts=prompts)
            run = msgspec.structs.replace(
                run, load=Load(samples=run.latency.count, failures=failures)
            )
            assert violated(run) == ({"failed-queries"} if is_violated else set())


def test_wrong_outputs_and_a_rate_that_is_too_high_make_a_run_invalid():
    """The numbers are stated; float kernels that round differently do not count as different."""
    offered = Load(samples=90, target_per_s=100.0, is_sustained=False, unserved=10)
    for rule, changes, numbers in [
        (
            "outputs-differ",
            {"output_check": OutputCheck(compared=8, differing=3)},
            {"output_check_differing": 3, "output_check_compared": 8},
        ),
        (
            "rate-not-sustained",
            {"load": offered, "throughput_per_s": 48.5},
            {"load_target_per_s": 100.0, "throughput_per_s": 48.5, "load_unserved": 10},
        ),
    ]:
        with table_row(rule):
            verdict = judged(measured(**changes))
            assert (verdict.state, verdict.rules, verdict.violations[0].numbers) == (
                "invalid",
                (rule,),
                numbers,
            )
    assert judged(measured(output_check=OutputCheck(compared=8))).state == "ok"


def test_a_server_that_answers_otherwise_when_it_is_asked_again_disturbs_the_run():
    """The server is asked twice alone, or while timed with nobody else.

    Differences that appear in a batch only raise no doubt.
    """
    for changes, rules in (({"varying": 1}, ("answers-vary",)), ({}, ())):
        run = measured(output_check=OutputCheck(compared=2, **changes))
        assert judged(run).rules == rules, f"{changes}"


def test_calls_that_leave_work_out_make_a_run_invalid():
    """This applies to a function in this process."""
    facts = {"incomplete": "each one leaves a thread running, pool"}
    (violation,) = judged(
        measured(runtime=runtime(name="python", backend="in-process", facts=facts))
    ).violations
    assert (violation.rule, violation.subject) == ("incomplete-calls", facts["incomplete"])


def test_what_an_accelerator_left_to_the_cpu_is_noted_and_a_software_gpu_disturbs():
    """The rule uses what the runtime reported, and never guesses."""
    for facts, rule, numbers in [
        ({}, None, {}),
        ({"operators_on_cpu": "64"}, None, {}),
        (
            {"operators_on_npu": "6", "operators_on_cpu": "2"},
            "partly-on-cpu",
            {"operators_on_cpu": 2, "operators": 8},
        ),
        ({"fully_accelerated": "no"}, "partly-on-cpu", {}),
        ({"fully_accelerated": "not reported"}, "not-reported", {}),
        ({"edgetpu_operators": "1", "cpu_operators": "1"}, "partly-on-cpu", {"cpu_operators": 1}),
        ({"gpu": "Mali-G610"}, None, {}),
        ({"gpu": "llvmpipe (LLVM 15.0.6, 256 bits)"}, "software-gpu", {}),
        ({"gpus_present": "Mali-G610; llvmpipe (software)"}, None, {}),
        ({"gpus_present": "a (software); llvmpipe"}, "software-gpu", {}),
    ]:
        with table_row(facts):
            verdict = judged(measured(runtime=runtime(facts=facts)))
            violated_rules = [
                (violation.rule, violation.numbers)
                for violation in (*verdict.violations, *verdict.notes)
            ]
            assert violated_rules == ([(rule, numbers)] if rule else [])
            assert verdict.state == ("disturbed" if rule == "software-gpu" else "ok")


def test_memory_that_grows_is_noted_where_all_inputs_have_one_shape():
    """A library may keep more for a larger input, and what is not measured is not judged."""
    shapes = runtime(facts={"timed_shapes": "2, from [1] to [2]"})
    memory = measured().memory
    for grown_mb, described, is_violated in (
        (16.0, None, False),
        (16.1, None, True),
        (None, None, False),
        (900.0, shapes, False),
    ):
        run = measured(
            memory=msgspec.structs.replace(memory, grown_mb=grown_mb),
            runtime=described or runtime(),
        )
        assert ("memory-grows" in violated(run)) == is_violated


def test_memory_that_grows_in_each_third_is_noted_by_what_an_hour_would_take():
    """Memory that comes to rest, or holds only a few outputs the benchmark keeps, is not noted."""
    for thirds_mb, grown_mb, is_violated in [
        ((100.0, 104.0, 108.0, 112.0), 12.0, True),
        ((100.0, 112.0, 112.0, 112.0), 12.0, False),
        ((100.0, 104.0, 108.0, 112.0), 0.1, False),
        ((100.0, 100.1, 100.2, 100.3), 0.3, False),
        ((), 12.0, False),
    ]:
        run = measured(
            memory=msgspec.structs.replace(measured().memory, grown_mb=grown_mb),
            memory_thirds_mb=thirds_mb,
        )
        assert ("memory-grows" in violated(run)) == is_violated, thirds_mb


NO_CARD = "m.onnx has no card"
GUESSES = (
    Guess(NO_CARD, "guessed", "family yolox from its output"),
    Guess(NO_CARD, "unsure", "its 80 classes have no names"),
)
DOUBT = Guess(NO_CARD, UNSURE_FAMILY, "yolov8 with 52 classes?")


def test_what_was_assumed_without_evidence_is_noted_where_it_matters():
    """All assumptions matter for an accuracy; only the family does for a timed run.

    A guess with evidence is no such assumption.
    """
    scored = make_accuracy()
    for guesses, accuracy, subject in [
        (GUESSES, scored, "its 80 classes have no names"),
        (GUESSES[:1], scored, None),
        (GUESSES, None, None),
        ((*GUESSES, DOUBT), None, "yolov8 with 52 classes?"),
    ]:
        with table_row(subject):
            notes = judged(measured(guesses=guesses, accuracy=accuracy)).notes
            assert [(note.rule, note.subject) for note in notes] == (
                [("unsure-model", subject)] if subject else []
            )
