"""Facts about `edgemeter.agent.verdict.accelerator_rules`."""

import msgspec

from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.measured_factory import measured
from tests.fixtures.rows import table_row

RULES = ("mostly-on-cpu", "partly-on-cpu", "software-gpu")
LEFT = {"left_to_cpu": "Softmax 2"}


def judged(facts):
    """Return the reasons and notes of these rules for what a runtime reported."""
    run = measured()
    verdict_of = verdict.judge(msgspec.structs.replace(run, runtime=msgspec.structs.replace(run.runtime, facts=facts)), ())
    reasons, notes = ([text for text in texts if text.startswith(RULES)] for texts in (verdict_of.reasons, verdict_of.notes))
    return reasons, notes


def test_what_an_accelerator_left_to_the_cpu_is_stated_with_its_share():
    """As far as the runtime reported it, never guessed; above a half it is a reason to doubt, as is a GPU that is software."""
    for facts, reasons, notes in [
        ({}, [], []),
        ({"operators_on_cpu": "64"}, [], []),
        (
            {"operators_on_openvino": "6", "operators_on_cpu": "2", **LEFT},
            [],
            ["partly-on-cpu: 2 of 8 operators (25%) on the CPU: Softmax 2"],
        ),
        ({"operators_on_npu": "1", "operators_on_cpu": "1"}, [], ["partly-on-cpu: 1 of 2 operators (50%) on the CPU"]),
        ({"operators_on_npu": "1", "operators_on_cpu": "2"}, ["mostly-on-cpu: 2 of 3 operators (67%) on the CPU"], []),
        ({"fully_accelerated": "no"}, [], ["partly-on-cpu"]),
        ({"fully_accelerated": "not reported"}, [], ["partly-on-cpu"]),
        ({"edgetpu_operators": "1", "cpu_operators": "1"}, [], ["partly-on-cpu: 1 operator on the CPU"]),
        ({"gpu": "Mali-G610"}, [], []),
        ({"gpu": "llvmpipe (LLVM 15.0.6, 256 bits)"}, ["software-gpu"], []),
        ({"gpus_present": "Mali-G610; llvmpipe (software)"}, [], []),
        ({"gpus_present": "a (software); llvmpipe"}, ["software-gpu"], []),
    ]:
        with table_row(facts):
            for texts, beginnings in zip(judged(facts), (reasons, notes), strict=True):
                assert len(texts) == len(beginnings)
                assert all(map(str.startswith, texts, beginnings))
