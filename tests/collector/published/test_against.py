"""Facts about published figures against own runs and other rows: what is compared, what is named, and what is never compared."""

import time

import pytest
from msgspec.structs import replace

from edgemeter.agent.contract.record_conditions import Condition, Verdict
from edgemeter.agent.contract.record_generation import LanguageModel, Quantisation
from edgemeter.collector.compare.summary import summaries_of
from edgemeter.collector.published.judge import judge
from edgemeter.collector.runs.cases import group_cases
from tests.fixtures.comparison_factory import day_by_day, make_run, no_energy
from tests.fixtures.published_factory import make_published
from tests.fixtures.record_factory import make_energy, make_environment, make_generation

STEADY_MS = (10.0, 10.02, 9.98, 10.01, 9.99, 10.0)
WHOLE = {
    "precision": "FP32",
    "runtime": "ONNX Runtime",
    "batch": 1,
    "threads": 2,
    "software": "onnxruntime 1.22.1",
    "statistic": "median",
    "input_size": "96x96",
}


def summaries(**changes):
    """Return the case of six days at 10 ms, fp32 on onnx on a Raspberry Pi 5; `changes` are its runs' fields."""
    runs = [make_run(p50_ms=p50_ms, **(no_energy() | changes)) for p50_ms in STEADY_MS]
    return summaries_of(group_cases(day_by_day(runs))[0])


def comparisons_of(row, cases=(), other_rows=()):
    """Return the comparisons of a row with own cases and other rows."""
    (judgement,) = judge([row], cases, other_rows)
    return judgement.comparisons


def against(row, cases):
    """Return the one comparison of a row with own cases."""
    (comparison,) = comparisons_of(row, cases)
    return comparison


def test_a_figure_of_the_same_case_agrees():
    """Within 3%, by the interval over days; nothing is left to name."""
    comparison = against(make_published(value=10.03, **WHOLE), summaries())
    assert (comparison.kind, comparison.outcome, comparison.differs) == ("own run", "agrees", ())
    assert comparison.ratio == pytest.approx(1.003)
    assert comparison.low < comparison.ratio < comparison.high
    assert comparison.sentence.startswith("10.03 ms is 1.00 times the 10.0 ms of tiny-detector fp32 on onnx, pi-1 (p50 over 6 days; 95%")


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(6.0, "contradicts"), (53.0, "contradicts"), (10.31, "not settled"), (10.0, "not settled"), (0.02, "contradicts")],
)
def test_a_figure_beyond_what_matters_contradicts(value, outcome):
    """On either side; at the limit, or where the page rounds, nothing is settled. The unit is the source's."""
    row = make_published(value=value, **WHOLE) if value > 1 else make_published(value=value, unit="s", **WHOLE)
    comparison = against(row, summaries())
    assert comparison.outcome == outcome
    assert comparison.ratio == pytest.approx(row.canonical[0] / 10.0)


@pytest.mark.parametrize(("days", "reason"), [(1, "own runs of one day: measure on 3 days"), (0, "1 run too few")])
def test_too_few_runs_or_days_settle_nothing(days, reason):
    """Six runs of one day have an interval within that day; two runs have none."""
    runs = [make_run(p50_ms=p50_ms, **no_energy()) for p50_ms in (STEADY_MS if days else STEADY_MS[:2])]
    comparison = against(make_published(value=53.0, **WHOLE), summaries_of(group_cases(runs)[0]))
    assert comparison.outcome == "not settled"
    assert reason in comparison.sentence
    assert (comparison.low is None) == (days == 0)


def test_what_a_page_does_not_state_is_compared_and_named():
    """The reader sees which conditions the ratio takes for granted."""
    comparison = against(make_published(value=10.03), summaries())
    assert comparison.outcome == "agrees"
    assert {"precision not stated (own: fp32)", "batch not stated (own: 1)", "threads not stated (own: 2)"} <= set(comparison.differs)
    assert "statistic not stated (own: median)" in comparison.sentence


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"precision": "INT8"}, "precision INT8 against fp32"),
        ({"batch": 8}, "batch 8 against 1"),
        ({"runtime": "OpenVINO"}, "runtime OpenVINO against onnx"),
        ({"input_size": "640x640"}, "input size 640x640 against 1x3x96x96"),
        ({"threads": 4}, "threads 4 against 2"),
        ({"device": "Raspberry Pi 5 16 GB"}, "memory 16 against 7.87"),
        ({"statistic": "p99.9"}, "own runs have no p99.9 of the latency"),
        ({"figure": "cold_start_load_ms"}, "own runs have no cold start, load, as others count it"),
        ({"figure": "size", "unit": "MB"}, "own runs have no size of the model's file"),
    ],
)
def test_another_case_is_not_compared(facts, reason):
    """And why is in the sentence: one network on other terms is other work."""
    comparison = against(make_published(**facts), summaries())
    assert (comparison.outcome, comparison.ratio) == ("not compared", None)
    assert reason in comparison.sentence


def test_another_power_mode_is_another_machine():
    """By any spelling; one that is not stated is named."""
    cases = summaries(environment=make_environment(board="NVIDIA Jetson Orin Nano Developer Kit", power_mode="MODE_25W"))
    board = {"device": "Jetson Orin Nano Super"}
    board["value"] = 10.03
    assert against(make_published(power_mode="25W", **board), cases).outcome == "agrees"
    assert against(make_published(power_mode="15 W", **board), cases).outcome == "not compared"
    unstated = against(make_published(**board), cases)
    assert {"power mode not stated (own: MODE_25W)", "Super mode yes, not recorded of the own runs"} <= set(unstated.differs)


@pytest.mark.parametrize("facts", [{"device": "Raspberry Pi 4"}, {"device": "Raspberry Pi 5 + Hailo-8L"}, {"model": "tiny-detector-s"}])
def test_another_board_or_model_has_no_comparison(facts):
    """Not even one that says so: most own cases are of something else."""
    assert comparisons_of(make_published(**facts), summaries()) == ()


def test_lengths_that_differ_are_not_compared():
    """A language model's figures depend on them."""
    cases = summaries(
        model="llama3.2-3b",
        task="text-generation",
        precision="q4_k_m",
        runtime="llama",
        generation=make_generation(),
        scenario="single_stream",
        ap=None,
    )
    row = make_published(model="Llama 3.2 3B Q4", figure="tokens", value=100.4, unit="t/s")
    assert against(row, cases).outcome == "agrees"
    assert "precision q4 against q4_k_m" in against(row, cases).differs
    assert "prompt tokens 128 against 512" in against(replace(row, prompt_tokens=128), cases).sentence


def test_an_own_device_goes_by_its_own_name_too():
    """What another tool printed on it names no board; the user gives the name that the ledger has."""
    assert against(make_published(value=10.03, device="pi-1"), summaries(environment=make_environment(board=None))).outcome == "agrees"


def test_a_server_states_which_model_it_is():
    """Its file names an address."""
    generation = make_generation(is_local=False, model=LanguageModel(name="llama3.2:3b", quantisation=Quantisation(file_type="Q4_K_M")))
    cases = summaries(model="board", task="text-generation", precision="q4_k_m", runtime="server", generation=generation, ap=None)
    assert against(make_published(model="Llama 3.2 3B", figure="tokens", value=100.4, unit="t/s"), cases).outcome == "agrees"


def test_the_published_statistic_decides_the_own_figure():
    """A mean is held against means, a p90 against p90s."""
    cases = summaries()
    assert against(make_published(value=12.0, statistic="p90"), cases).ratio == pytest.approx(1.0, abs=0.01)
    assert against(make_published(value=12.5, statistic="mean"), cases).ratio == pytest.approx(1.0)


def test_an_energy_has_the_meters_uncertainty_in_its_interval():
    """Scopes are never mixed, and power takes the uncertainty of the energy that it was measured with."""
    cases = summaries(energy=make_energy(), energy_reason=None)
    energy = against(make_published(figure="energy", value=63.0, unit="mJ"), cases)
    assert energy.outcome == "agrees"
    assert energy.high / energy.ratio > 1.02
    assert against(make_published(figure="energy", value=63.0, unit="mJ", scope="wall-ac"), cases).outcome == "not compared"
    power = against(make_published(figure="power", value=5.1, unit="W", statistic="mean"), cases)
    assert power.high / power.ratio > 1.02
    assert against(make_published(figure="power", value=5.1, unit="W", statistic="max"), cases).outcome == "not compared"


def test_an_accuracy_is_compared_over_the_same_items_only():
    """By the same metric over as many images of the same data."""
    row = make_published(figure="accuracy", value=61.0, unit="%")
    assert against(row, summaries()).outcome == "not compared"
    on_the_same = against(replace(row, accuracy_metric="coco_ap", dataset="scenes", images=80), summaries())
    assert on_the_same.outcome == "not settled"
    assert on_the_same.ratio == pytest.approx(0.61 / 0.6)


@pytest.mark.parametrize("provenance", ["replayed", "estimated", "simulated"])
def test_runs_that_measured_nothing_are_never_compared(provenance):
    """A replay is true of its recording; an estimate is no evidence against anybody."""
    comparisons = comparisons_of(make_published(), summaries(provenance={"latency": provenance}))
    assert all(comparison.outcome == "not compared" for comparison in comparisons)


def test_an_estimated_energy_is_never_compared():
    """Though the latency of the same runs is."""
    cases = summaries(energy=make_energy(sensor="estimate"), energy_reason=None)
    assert against(make_published(figure="energy", value=62.5, unit="mJ"), cases).outcome == "not compared"
    assert against(make_published(value=10.03), cases).outcome == "agrees"


def test_official_mlperf_results_are_never_compared_with_own_runs():
    """Their rules forbid it; with other rows neither."""
    row = make_published(source="MLPerf Inference v6.0", stated_by="vendor")
    comparison = against(row, summaries())
    assert comparison.outcome == "not compared"
    assert "may only be compared with compatible" in comparison.sentence
    assert comparisons_of(row, (), [make_published()]) == ()
    assert comparisons_of(make_published(), (), [row]) == ()


def test_a_published_figure_never_enters_an_own_median():
    """Whatever rows stand beside it, the own side is the ledger's cases: the same object, the same median."""
    cases = summaries()
    before = {name: spread.median for name, spread in cases[0].spreads.items()}
    row = make_published(value=53.0, **WHOLE)
    alone = against(row, cases)
    crowd = [make_published(version=str(number), value=1000.0, **WHOLE) for number in range(50)]
    own_runs = [comparison for comparison in comparisons_of(row, cases, crowd) if comparison.kind == "own run"]
    assert own_runs == [alone]
    assert alone.ratio == pytest.approx(53.0 / 10.0)
    assert {name: spread.median for name, spread in cases[0].spreads.items()} == before


def test_the_nearest_of_several_own_cases_counts():
    """A figure without threads may be of either number; of two boards each has its comparison."""
    runs = [
        make_run(p50_ms=p50_ms * factor, threads=threads, **no_energy()) for threads, factor in ((2, 1), (4, 0.5)) for p50_ms in STEADY_MS
    ]
    cases = summaries_of(group_cases(day_by_day(runs[:6], runs[6:]))[0])
    comparison = against(make_published(value=5.02), cases)
    assert comparison.outcome == "agrees"
    assert "the nearest of 2 own cases" in comparison.sentence
    both = [*cases, *summaries(device="pi-2")]
    assert [comparison.outcome for comparison in comparisons_of(make_published(value=5.02), both)] == ["agrees", "contradicts"]


def test_a_figure_of_an_accelerator_is_none_of_its_board():
    """A run on a stick is held against figures of that stick, whatever the board."""
    cases = summaries(runtime="hailo", environment=make_environment(attached=("Hailo-8L PCIe (0001:01:00.0)", "1d6b:0002 hub")))
    assert comparisons_of(make_published(value=500.0), cases) == ()
    assert against(make_published(value=10.03, device="HAILO8L"), cases).outcome == "agrees"
    assert against(make_published(value=10.03, device="Raspberry Pi 5 + Hailo-8L"), cases).outcome == "agrees"


def test_suspect_runs_accuse_nobody():
    """They are compared, and why they are suspect is named."""
    verdict = Verdict(state="suspect", reasons=("throttled: the clock fell",))
    comparison = against(make_published(value=53.0, **WHOLE), summaries(verdict=verdict))
    assert comparison.outcome == "not settled"
    assert "own runs are suspect: throttled" in comparison.sentence


@pytest.mark.parametrize("facts", [{"device": "Developer Kit"}, {"model": "Q4"}])
def test_a_name_that_names_nothing_matches_nothing(facts):
    """Not even a board that reports none."""
    cases = summaries(environment=make_environment(board=None))
    assert comparisons_of(make_published(**facts), cases, [make_published(version="2", **facts)]) == ()


def test_a_range_may_begin_far_below_its_value():
    """An interval is of logarithms; the figure is above 0 all the same."""
    assert against(make_published(value=10.0, low=0.001, high=20.0), summaries()).outcome == "not settled"


def test_a_range_beside_a_mean_is_of_the_queries():
    """Else a tool that prints the fastest and the slowest query could never be contradicted."""
    cases = summaries()
    assert against(make_published(value=53.0, low=9.0, high=80.0), cases).outcome == "not settled"
    assert against(make_published(value=53.0, low=9.0, high=80.0, statistic="mean"), cases).outcome == "contradicts"


def test_a_page_that_changed_contradicts_itself():
    """530 ms became 81: another version of the same page."""
    row = make_published(model="yolo11n", value=81.192, runtime="OpenVINO")
    earlier = make_published(model="YOLO11n", value=530.224, runtime="openvino", version="8.2.0")
    other_runtime = make_published(model="YOLO11n", value=405.2, runtime="PyTorch", version="8.2.0")
    (comparison,) = comparisons_of(row, (), [earlier, other_runtime])
    assert (comparison.kind, comparison.outcome) == ("published row", "contradicts")
    assert comparison.ratio == pytest.approx(81.192 / 530.224)
    assert comparison.sentence.startswith("the same source says 530.224 ms (8.2.0, 2026-11-20): 6.53 times as long")
    assert "software and power mode stated on neither side" in comparison.sentence


def test_rows_of_other_sources_agree_within_a_tenth():
    """The row itself, and the others of its edition, are no other evidence."""
    row = make_published(figure="tokens", value=20.0, unit="t/s", model="Llama 3.2 3B Q4")
    near = make_published(figure="tokens", value=19.2, unit="tokens/s", model="llama3.2:3b", source="a blog")
    far = make_published(figure="tokens", value=4.61, unit="tokens/s", model="llama3.2:3b", source="a repository")
    same_edition = make_published(figure="tokens", value=7.0, unit="t/s", model="Llama 3.2 3B", batch=1)
    outcomes = {comparison.name.split(" |")[0]: comparison.outcome for comparison in comparisons_of(row, (), [near, far, same_edition])}
    assert outcomes == {"a blog": "agrees", "a repository": "contradicts"}


def of_language(**changes):
    """Return the case of six days at 100 tokens/s, one user and no speculation, on a Jetson in its 25 W mode."""
    fields = {
        "model": "llama3.2-3b",
        "task": "text-generation",
        "precision": "q4_k_m",
        "runtime": "llama",
        "scenario": "single_stream",
        "ap": None,
    }
    environment = make_environment(board="NVIDIA Jetson Orin Nano Developer Kit", power_mode="MODE_25W")
    return summaries(generation=make_generation(), environment=environment, **(fields | changes))


SLOW = {"model": "Llama 3.2 3B", "device": "Jetson Orin Nano", "figure": "tokens", "value": 300.4, "unit": "t/s"}


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ("8 users", "batch 8 against 1"),
        ("batch=8", "batch 8 against 1"),
        ("with speculative decoding, 1B draft", "speculation on against off"),
        ("15W mode", "power mode 15 W against MODE_25W"),
    ],
)
def test_conditions_in_words_make_another_case(conditions, reason):
    """As the rules read it; a field of its own is seldom filled."""
    comparison = against(make_published(conditions=conditions, **SLOW), of_language())
    assert comparison.outcome == "not compared"
    assert reason in comparison.sentence
    assert against(make_published(**SLOW), of_language()).outcome == "contradicts"


@pytest.mark.parametrize("conditions", ["tensor parallel over several boards", "batched requests", "offloaded to an RX 6700 XT"])
def test_a_condition_without_a_number_settles_nothing(conditions):
    """It may be the own case, and may explain any ratio."""
    assert against(make_published(conditions=conditions, **SLOW), of_language()).outcome != "contradicts"


def test_a_power_mode_may_stand_in_the_name_of_the_device():
    """The board is the same, the case another."""
    comparison = against(make_published(**(SLOW | {"device": "Jetson Orin Nano (7W)"})), of_language())
    assert "power mode 7 W against MODE_25W" in comparison.sentence


@pytest.mark.parametrize("facts", [{"batch": 1024}, {"concurrency": 8}, {"speculative": "draft"}, {"conditions": "64 users"}])
def test_a_batch_of_one_side_only_contradicts_nothing(facts):
    """What the other source leaves out may be that batch; one answer at a time is what everybody takes for granted."""
    row, other = make_published(**SLOW), make_published(**(SLOW | {"value": 9000.0, "source": "a blog"} | facts))
    for first, second in ((row, other), (other, row)):
        (comparison,) = comparisons_of(first, (), [second])
        assert comparison.outcome == "not settled"
        assert "stated on one side only" in " ".join(comparison.differs)
    (comparison,) = comparisons_of(make_published(source="a blog", batch=1, **(SLOW | {"value": 9000.0})), (), [row])
    assert comparison.outcome == "contradicts"


def test_another_clock_is_another_case():
    """Where both sides state theirs; an own run of the cores records it."""
    condition = Condition(when="during", clock_hz=2.4e9)
    cases = summaries(conditions=(condition,))
    assert "clock in GHz 1.5 against 2.4" in against(make_published(clock_hz=1.5e9), cases).sentence
    assert against(make_published(value=10.03, clock_hz=2.4e9), cases).outcome == "agrees"
    row, other = make_published(clock_hz=1.5e9), make_published(clock_hz=2.4e9, source="a blog", value=20.0)
    assert comparisons_of(row, (), [other]) == ()
    assert len(comparisons_of(row, (), [replace(other, clock_hz=1.51e9)])) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("NVIDIA H100 PCIe", "H100 SXM5"), ("RTX 4060 Laptop", "RTX 4060 desktop"),
        ("RTX 3090 Ti", "RTX 3090"), ("RTX 4070 Super", "RTX 4070"),
        ("Raspberry Pi 5 with AI HAT+ (13 TOPS)", "Raspberry Pi 5 with AI HAT+ (26 TOPS)"),
        ("Coral USB on a Raspberry Pi 3", "Coral Dev Board"),
        ("Raspberry Pi 3 Model B", "Raspberry Pi 3B+"), ("RTX 4060 Ti 8GB", "RTX 4060 Ti 16GB"),
        ("Raspberry Pi 5 with Hailo-8", "Raspberry Pi 4 with Hailo-8"), ("Raspberry Pi 5 with AI HAT+ (13 TOPS)", "Hailo-8"),
    ],
)  # fmt: skip
def test_products_of_one_name_are_not_compared(first, second):
    """Where both names say which one it is."""
    row, other = make_published(device=first), make_published(device=second, source="a blog", value=20.0)
    assert comparisons_of(row, (), [other]) == ()
    assert comparisons_of(other, (), [row]) == ()


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ("NVIDIA H100 PCIe", "H100", "product pcie"), ("RTX 4090 Laptop", "RTX 4090", "product laptop"),
        ("Raspberry Pi 5 with RTX 4090", "RTX 4090", "board Raspberry Pi 5"), ("Hailo-8L", "Raspberry Pi AI HAT+", "product 13 TOPS"),
        ("Raspberry Pi 3", "Raspberry Pi 3 Model B Plus Rev 1.3", "product b+"),
    ],
)  # fmt: skip
def test_a_shorter_name_is_compared_and_the_difference_named(first, second, difference):
    """It may be the same product."""
    (comparison,) = comparisons_of(make_published(device=first), (), [make_published(device=second, source="a blog", value=20.0)])
    assert f"{difference} stated on one side only" in comparison.differs


def test_an_own_accelerator_is_the_one_that_is_attached():
    """A HAT of 13 TOPS is a Hailo-8L, and the board that it is on counts."""
    environment = make_environment(board="Raspberry Pi 5 Model B Rev 1.0", attached=("Hailo-8L PCIe (0001:01:00.0)",))
    cases = summaries(runtime="hailo", environment=environment)
    assert against(make_published(value=10.03, device="Raspberry Pi 5 with AI HAT+ (13 TOPS)"), cases).outcome == "agrees"
    hailo = make_published(value=53.0, device="Hailo-8L", runtime="hailo", batch=1)
    assert against(hailo, cases).outcome == "contradicts"
    on_board = make_published(value=53.0, device="Raspberry Pi 5", backend="Hailo-8")
    assert "accelerator Hailo-8 against none" in against(on_board, summaries()).sentence
    assert "product 26 TOPS against 13 TOPS" in against(make_published(device="Hailo-8"), cases).sentence
    assert "board Raspberry Pi 4 against Raspberry Pi 5" in against(make_published(device="Raspberry Pi 4 with Hailo-8L"), cases).sentence


def test_a_source_that_names_mlperf_anywhere_stands_apart():
    """However it is written."""
    for source in ("MLCommons MLPerf Tiny v1.3", "mlperf-inference results"):
        row = make_published(source=source)
        assert row.is_mlperf
        assert comparisons_of(row, (), [make_published()]) == ()


def test_of_many_comparisons_the_nearest_and_the_farthest_are_written_out():
    """The others are counted, of other editions and of own devices."""
    row = make_published(value=10.0)
    editions = [make_published(version=str(number), value=10.0 + number) for number in range(1, 21)]
    (judgement,) = judge([row], (), editions)
    assert [comparison.name.split(" | ")[1] for comparison in judgement.comparisons] == ["1", "2", "3", "4", "5", "6", "19", "20"]
    assert judgement.further_comparisons == 12
    fleet = [case for number in range(10) for case in summaries(device=f"pi-{number}")]
    (judgement,) = judge([row], fleet, editions)
    assert (len(judgement.comparisons), judgement.further_comparisons) == (16, 14)


@pytest.mark.alone
def test_thousands_of_rows_of_one_case_take_seconds():
    """The nearest row of an edition is found without looking at every other one: 5,000 took 93 s, 1,000 editions 33 s and 344 MB."""
    two_editions = [
        make_published(version=str(number % 2), prompt_tokens=number // 2 + 1, value=5.0 + number * 7919 % 4500 / 100)
        for number in range(2000)
    ]
    many_editions = [make_published(version=str(number), value=5.0 + number * 7919 % 4500 / 100) for number in range(300)]
    for rows in (two_editions, many_editions):
        started_s = time.process_time()
        judged = judge(rows)
        assert time.process_time() - started_s < 8
        assert max(len(judgement.comparisons) for judgement in judged) <= 8
    assert all(comparison.name.startswith("a guide | ") for comparison in judged[0].comparisons)
