"""Facts about `edgemeter.agent.cli.run_output`.

They concern the block of one case, the table of several, and the lines below them.
"""

import io
import re

import msgspec
import pytest

from edgemeter.agent.base.console import Console
from edgemeter.agent.cli import run_output
from edgemeter.agent.cli.session import session_document
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.contract.record_figures import ColdStart, Windows
from edgemeter.agent.contract.record_generation import GenerationEnergy
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.measuring.case_text import resolution
from edgemeter.agent.measuring.measure_suite import SessionOutcome
from edgemeter.agent.measuring.measured_case import cases_of
from edgemeter.agent.session.run_energy import generation_energy
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_latency,
    make_model,
    make_record,
    make_steady,
)
from tests.fixtures.rows import table_row
from tests.fixtures.snapshot import same_as_snapshot


def printed(*runs, width=140, **how):
    out = io.StringIO()
    run_output.print_runs(runs, Console(file=out, width=width), **how)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def repeats(*p50s_ms, **changes):
    return [
        make_record(id=f"{index:032x}", latency=make_latency(p50_ms=p50_ms), **changes)
        for index, p50_ms in enumerate(p50s_ms, 1)
    ]


def judged(runs, *violations):
    verdicts = [
        Verdict(state="disturbed" if of_run else "ok", violations=of_run) for of_run in violations
    ]
    return [
        msgspec.structs.replace(run, verdict=verdict)
        for run, verdict in zip(runs, verdicts, strict=True)
    ]


def power_modes():
    modes = (("0 15W", 4.0), ("1 25W", 2.0))
    return [
        run
        for mode, p50_ms in modes
        for run in repeats(p50_ms, p50_ms, p50_ms, environment=make_environment(power_mode=mode))
    ]


def generated():
    of_tokens = GenerationEnergy(output_token_gross_mj=530.0)
    energy = make_energy()
    return repeats(
        2.0,
        2.1,
        2.2,
        generation=make_generation(energy=of_tokens),
        accuracy=None,
        reasons={"accuracy": "none"},
        energy=energy,
    )


def generated_at_two_lengths():
    """Return a run with eleven output tokens and one with a single token.

    They take 4 J and 0.5 J a request, each ± 1%.
    """
    runs = []
    for output_tokens, gross_mj in ((11, 4000.0), (1, 500.0)):
        energy = make_energy(gross_mj=gross_mj, gross_u_mj=gross_mj / 100)
        text = make_generation(output_tokens=output_tokens)
        of_tokens, _ = generation_energy(energy, text)
        runs.append(
            make_record(
                generation=msgspec.structs.replace(text, energy=of_tokens),
                energy=energy,
                accuracy=None,
            )
        )
    return runs


THREE = repeats(140.0, 138.0, 143.0)
BUSY = Violation(rule="busy-machine", numbers={"other_load_ratio": 0.4})
DOUBTED = judged(THREE, (BUSY, Violation(rule="throttled")), (BUSY,), ())
INVALID = [
    *THREE,
    *repeats(9.0, verdict=Verdict(state="invalid", violations=(Violation(rule="accuracy-gate"),))),
]
OTHER = repeats(
    40.0, 41.0, 42.0, model=make_model(name="other"), accuracy=None, reasons={"accuracy": "no data"}
)
IDLE_5_S = {
    "timed_start_ns": 0,
    "timed_end_ns": 10**9,
    "idle_before_ns": (-5 * 10**9, 0),
    "idle_after_ns": (10**9, 6 * 10**9),
}
PRINTED = {
    "one case": (
        THREE,
        {"seconds": 41.0, "notes": ["saved as 46155abc: edgemeter compare 46155abc OTHER.onnx"]},
    ),
    "one run": (repeats(2.0), {}),
    "too few queries": ([make_record(latency=make_latency(p50_ms=None))], {}),
    "wide": (repeats(2.0, 2.6, 2.2), {"wide": True, "width": 200}),
    "an invalid run is left out": (INVALID, {}),
    "disturbed": (DOUBTED, {}),
    "several cases": ([*THREE, *OTHER], {"seconds": 80.0}),
    "a language model": (generated(), {}),
    "prefill and decoding": (generated_at_two_lengths(), {}),
    "a language model and a detector": ([*generated(), *OTHER], {}),
    "a replayed energy": (
        repeats(2.0, energy=make_energy(sensor="replay:demo", excludes=("power-supply loss",))),
        {},
    ),
    "power modes": (power_modes(), {}),
    "an hour of a camera": ([camera_hour()], {}),
    "frames": (
        [make_record(steady=make_steady(), energy=None, reasons={"energy": "no sensor"})],
        {},
    ),
    "frames that come too fast": (
        [make_record(steady=make_steady(late=900, missed_ratio=1.0))],
        {},
    ),
    "a few frames, all of them missed": (
        [make_record(steady=make_steady(rate_per_s=600.0, frames=64, late=64, missed_ratio=1.0))],
        {},
    ),
    "no net energy": (
        repeats(2.0, energy=make_energy(net_mj=None, net_u_mj=None), windows=Windows(**IDLE_5_S)),
        {},
    ),
}


def test_what_was_saved_is_compared_with_another_model_on_the_same_data():
    """A record does not hold the paths of its data."""
    settings = Settings(data="my photos", annotations="a.json", subset=40, mode="rapid")
    compared_with = run_output.saved_line(THREE, [], settings).partition(" OTHER.onnx ")[2]
    assert compared_with == "--data 'my photos' --annotations a.json --subset 40"
    assert run_output.saved_line([*THREE, *OTHER], [], settings).endswith(": edgemeter runs")


def test_the_data_of_a_suite_are_named_as_those_of_options(tmp_path):
    """Without the data's paths the suggested command would measure on random inputs.

    They are relative to the suite's folder.
    """
    (measured,) = {run.model.file for run in THREE}
    cases = [
        Settings(model="other.onnx", data="others"),
        Settings(model=measured, data="photos", annotations="coco.json"),
    ]
    suite = expand(SuiteFile(name="s", case=cases), tmp_path)
    line = run_output.saved_line(THREE, suite.cases, Settings())
    assert line.endswith(
        f" OTHER.onnx --data {tmp_path / 'photos'} --annotations {tmp_path / 'coco.json'}"
    )


def test_a_case_is_called_by_its_first_run():
    """`compare` calls it so too, whichever run has the median of the latencies."""
    runs = repeats(143.0, 138.0, 140.0)
    assert [run.id for run in runs if run.latency.p50_ms == 140.0] == [f"{3:032x}"]
    line = run_output.saved_line(
        [msgspec.structs.replace(run, id=f"{index}" * 32) for index, run in enumerate(runs, 1)],
        [],
        Settings(),
    )
    assert line.startswith("saved as 11111111: edgemeter compare 11111111 OTHER")


def test_what_is_printed_of_runs():
    """The snapshot has intervals, verdicts, tokens, energies, power modes and frames."""
    blocks = [
        f"== {title}\n{printed(*runs, **settings)}" for title, (runs, settings) in PRINTED.items()
    ]
    same_as_snapshot("run-output", re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "RUN", "\n".join(blocks)))


def test_a_table_has_at_most_100_columns_and_never_cuts_a_figure():
    """The model's name is shortened, and the numbers never are."""
    names = ("coco_ssd_mobilenet_v1_1.0_quant_2018_06_29", "efficientdet_lite0_int8_metadata")
    text = printed(
        *(
            run
            for name in names
            for run in repeats(140.0, 138.0, 143.0, model=make_model(name=name))
        ),
        width=200,
    )
    table = text.splitlines()[:6]
    assert max(map(len, table)) <= 100
    assert "140 ± 5%" in text
    assert "verdict" in text


@pytest.mark.parametrize("width", [80, 100])
def test_a_full_table_keeps_names_speeds_and_verdicts(width):
    """The table leaves out other columns and says which.

    It holds language models and detectors, all with energy and long names.
    """
    changes = (
        {"model": make_model(name=f"efficientdet_lite{number}_int8_metadata", size_bytes=number)}
        for number in range(3)
    )
    detectors = [run for change in changes for run in repeats(140.0, 138.0, 143.0, **change)]
    texts = [
        msgspec.structs.replace(run, model=make_model(name="Qwen2.5-0.5B-Instruct-Q4_K_M"))
        for run in generated()
    ]
    lines = printed(*detectors, *texts, width=width).splitlines()
    heading, rows = lines[1], lines[3:7]
    assert "p50 ms" in heading
    assert "tg t/s" in heading
    assert heading.endswith("verdict")
    assert all(row.endswith("ok") for row in rows)
    assert len({row.split()[0] for row in rows}) == 4
    assert lines[7].startswith("left out: ")
    assert lines[7].endswith("(--wide shows each run)")


@pytest.mark.parametrize(
    ("p50s_ms", "text"),
    [
        ((10.0, 10.0), ""),
        ((10.0, 10.1, 9.9), "Differences above 6% can be seen."),
        ((10.0, 11.0, 9.0), "--repeats 29."),
    ],
)
def test_the_interval_says_what_can_be_seen_and_how_many_runs_would_narrow_it(p50s_ms, text):
    """Two intervals of ± 3.9% leave out 1 from 5.5% on."""
    (case,) = cases_of(repeats(*p50s_ms))
    assert text in resolution([case])


def test_no_more_runs_are_advised_for_what_is_as_narrow_already():
    """Most of the interval is the assumed scatter between sessions of a virtual machine."""
    guest = make_environment(virtualisation="kvm")
    (case,) = cases_of(repeats(10.0, 10.5, 9.8, 10.2, 9.7, environment=guest))
    assert resolution([case]) == "Differences above 19% can be seen."
    (case,) = cases_of(repeats(10.0, 11.5, 9.3, environment=guest))
    assert "would narrow the interval to ± 13%" in resolution([case])


def test_the_progress_of_frames_names_the_share():
    """A share alone would not tell missed frames from answered ones."""
    (case,) = cases_of([make_record(steady=make_steady(late=0, missed_ratio=0.0), accuracy=None)])
    assert case.summary.startswith("0% missed, ")


def test_the_document_has_the_answer_of_power_modes():
    """The marks of each."""
    document = session_document(SessionOutcome(power_modes(), []))
    (answer,) = msgspec.json.decode(document)["answer"]
    assert answer["modes"] == {
        "15W": ["most frugal"],
        "25W": ["fastest", "not significantly different from the most frugal"],
    }


def test_a_single_run_is_not_advised_to_be_repeated():
    """It was one of several or was asked to be one, such as that of a round of a pull request."""
    for seconds in (None, 5.0):
        with table_row(seconds):
            assert "--repeats" not in printed(*repeats(10.0), seconds=seconds)


def test_only_runs_that_count_are_a_reason_to_run_again():
    """The output says how many of the runs do not count."""
    runs = judged(repeats(140.0, 138.0, 143.0, 139.0, 141.0), (), (BUSY,), (), (BUSY,), ())
    text = printed(*runs, seconds=60.0)
    assert "  2 of 5 runs do not count, because they were disturbed.\n" in text
    assert "run again" not in text
    assert "those of time and energy include an assumed scatter of 1.5% between sessions." in text
    assert "assumed" not in printed(*runs[:2])


def test_a_run_that_lies_apart_counts_where_fewer_than_three_others_are_ok():
    """The case is then disturbed, its interval is wide, and the output says why.

    With one further run, the run that lies apart does not count.
    """
    apart = repeats(185.0, 143.4, 140.8, session_started_at_ns=7)
    text = printed(*apart)
    assert "  Latency     155 ms (106 to 227)" in text
    assert (
        "  disturbed: a p50 of 185 ms is far from 143.4 ms, the median of the 3 runs of that "
        "session (1 of 3 runs)."
    ) in text
    assert "  1 disturbed run counts, because fewer than 3 runs of its case are ok.\n" in text
    text = printed(*repeats(185.0, 143.4, 140.8, 142.0, session_started_at_ns=7))
    assert "  Latency     142 ms ± 4%" in text
    assert "  1 of 4 runs does not count, because it was disturbed.\n" in text


def test_runs_that_will_not_count_are_among_those_that_are_asked_for():
    """Two of five runs did not count, so that more runs are asked for."""
    quiet, busy = (
        judged(repeats(10.0, 11.0, 9.0, *[10.0] * extra), (), (), (), *[(BUSY,)] * extra)
        for extra in (0, 2)
    )
    assert "About 29 runs" in resolution(cases_of(quiet))
    assert "About 49 runs" in resolution(cases_of(busy))


def test_the_accuracy_of_a_run_that_was_disturbed_is_that_of_the_case():
    """Only one run is scored, and a busy machine moves no box."""
    first, *unscored = judged(repeats(140.0, 138.0, 143.0, 139.0), (BUSY,), (), (), ())
    runs = [first, *(msgspec.structs.replace(run, accuracy=None) for run in unscored)]
    assert f"AP {first.accuracy.value:.3f}" in printed(*runs)


def test_figures_without_an_interval_have_none_however_they_differ():
    """Start-up happens once a process and scatters widely, so that only its mean is shown."""
    starts = [
        make_record(
            cold_start=ColdStart(process_ms=1.0, import_ms=1.0, load_ms=load_ms, first_ms=2.0)
        )
        for load_ms in (5.0, 20.0, 80.0)
    ]
    assert "  Start-up    load 20.0 ms, first inference 2.00 ms\n" in printed(*starts)
