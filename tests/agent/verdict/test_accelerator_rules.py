"""Facts about `edgemeter.agent.verdict.accelerator_rules`."""

import msgspec
import pytest

from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.measured_factory import measured

RULES = ("mostly-on-cpu", "partly-on-cpu", "software-gpu")
LEFT = {"left_to_cpu": "Softmax 2"}
NOT_REPORTED = "the library does not report what the accelerator took: session.disable_cpu_ep_fallback=1 refuses operators on the CPU"


def judged(facts):
    """Return the reasons and notes of these rules, and the state, for what a runtime reported."""
    run = measured()
    verdict_of = verdict.judge(msgspec.structs.replace(run, runtime=msgspec.structs.replace(run.runtime, facts=facts)), ())
    reasons, notes = ([text for text in texts if text.startswith(RULES)] for texts in (verdict_of.reasons, verdict_of.notes))
    return reasons, notes


@pytest.mark.parametrize(
    ("facts", "reasons", "notes"),
    [
        ({}, [], []),
        ({"operators_on_cpu": "64"}, [], []),
        (
            {"operators_on_openvino": "6", "operators_on_cpu": "2", **LEFT},
            [],
            ["partly-on-cpu: 2 of 8 operators (25%) on the CPU: Softmax 2"],
        ),
        ({"operators_on_npu": "1", "operators_on_cpu": "2"}, ["mostly-on-cpu: 2 of 3 operators (67%) on the CPU"], []),
        (
            {"fully_accelerated": "no"},
            [],
            ["partly-on-cpu: the library reports that not all operators are on the accelerator, and not how many"],
        ),
        (
            {"fully_accelerated": "not reported"},
            [],
            [f"partly-on-cpu: {NOT_REPORTED}"],
        ),
        (
            {"edgetpu_operators": "1", "cpu_operators": "1"},
            [],
            ["partly-on-cpu: 1 operator on the CPU; the program of the Edge TPU counts as one, so the share is unknown"],
        ),
        ({"gpu": "Mali-G610"}, [], []),
        ({"gpu": "llvmpipe (LLVM 15.0.6, 256 bits)"}, ["software-gpu: the processor played the GPU: llvmpipe (LLVM 15.0.6, 256 bits)"], []),
        ({"gpus_present": "Mali-G610; llvmpipe (software)"}, [], []),
        ({"gpus_present": "a (software); llvmpipe"}, ["software-gpu: the processor played the GPU: a (software); llvmpipe"], []),
    ],
)
def test_what_an_accelerator_left_to_the_cpu_is_stated_with_its_share(facts, reasons, notes):
    """As far as the runtime reported it, never guessed; above a half it is a reason to doubt, as is a GPU that is software."""
    assert judged(facts) == (reasons, notes)
