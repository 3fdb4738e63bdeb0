"""Test `edgemeter compare A B` where a side is a model.

The model is measured in turn with the others; the session is simulated here.
"""

import json

import pytest
from msgspec.structs import replace

from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record_conditions import DatasetInfo, Verdict, Violation
from edgemeter.agent.measuring import elsewhere
from edgemeter.agent.measuring.measure_suite import SessionOutcome
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.measuring.suites import is_model
from edgemeter.collector.compare.measured_sides import measure_sides
from tests.fixtures.command import edgemeter
from tests.fixtures.played_session import play, run_of
from tests.fixtures.record_factory import make_accuracy
from tests.fixtures.replay_case import write_replay
from tests.fixtures.rows import in_folders
from tests.fixtures.snapshot import same_as_snapshot

SPEEDS_MS = {"a": 10.0, "b": 5.0, "c": 10.0}
NOISE = (1.0, 1.004, 0.996)


def run_in_round(letter, number):
    """Return a run of a, b or c: a round slows all of them down alike."""
    return run_of(letter, SPEEDS_MS[letter] * NOISE[number % 3] * (1 + 0.1 * (number % 2)))


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Return the folder with three models that are measured in turn, in which the test is."""
    for name in "abc":
        write_replay(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    return tmp_path


def compared(*arguments):
    """Return the rows and what is left out, as JSON has them."""
    result = edgemeter("compare", *arguments, "--format", "json")
    assert result.stdout, result.stderr
    document = json.loads(result.stdout)
    return result, document["rows"], [entry["reason"] for entry in document["left_out"]]


def test_results_and_models_are_distinguished(models):
    """A model's file, a factory, a suite, a replay or a name is measured.

    A document, a ledger, a bundle, a folder or an id is read.
    """
    (models / "folder").mkdir()
    measured = ["a.onnx", "b.TFLITE", "suite.toml", "x.replay.json", "yolox-nano", "a_q4.gguf"]
    measured += ["net.py:make", "json:loads"]
    read = [
        "runs.json",
        "ledger.sqlite?device=pi-1",
        "a.edgemeter.zip",
        "folder",
        "server-1",
        "no_such_module:net",
        "46155abc",
    ]
    assert [is_model(name) for name in (*measured, *read)] == [True] * 8 + [False] * 7


@pytest.mark.usefixtures("models")
def test_models_are_measured_in_turn_and_compared_with_the_first(monkeypatch):
    """Models run as AB BA BA until both are known.

    The rounds are pairs, so that what slows both down is in no difference.
    """
    begun = play(monkeypatch, run_in_round)
    result, (first, second), left_out = compared("a.replay.json", "b.replay.json", "--repeats", 4)
    assert (result.returncode, left_out) == (0, [])
    assert begun == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3)]
    assert (first["is_reference"], second["reference_latency_p50_ms"]) == (
        True,
        first["latency_p50_ms"],
    )
    assert (second["latency_p50_ms_outcome"], second["latency_p50_ms_ratio"]) == (
        "better",
        pytest.approx(0.5),
    )
    assert second["latency_p50_ms_ratio_high"] - second["latency_p50_ms_ratio_low"] < 1e-6
    # Where nobody watches, a line for each run, and what to do with the result.
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert [line.partition(":")[0] for line in lines[:2]] == [
        "[1/8] a.replay.json replay 1 thread",
        "[2/8] b.replay.json replay 1 thread",
    ]
    assert lines[-1] == "saved as 00000001 and 00000002: edgemeter compare 00000001 00000002"
    second_result, (_, stored), _ = compared("00000001", "00000002")
    assert (second_result.returncode, stored["runs"], stored["latency_p50_ms_ratio"]) == (
        0,
        4,
        second["latency_p50_ms_ratio"],
    )


@pytest.mark.usefixtures("models")
def test_a_model_is_compared_with_itself(monkeypatch):
    """In this control each side has the runs of its place, not all runs of the case."""
    play(monkeypatch, run_in_round)
    result, rows, _ = compared("a.replay.json", "a.replay.json", "--repeats", 3)
    assert [row["runs"] for row in rows] == [3, 3]
    assert rows[1]["latency_p50_ms_outcome"] == "no difference"
    assert result.stderr.splitlines()[-1] == "saved as 00000001: edgemeter compare 00000001 OTHER"


@pytest.mark.usefixtures("models")
def test_a_side_that_fails_is_left_out_with_its_reason(monkeypatch):
    """A side may fail before or in its first run; with fewer than two nothing is compared."""
    outcomes = {"b": UnavailableError("no kernel for it")}
    begun = play(
        monkeypatch, lambda letter, number: outcomes.get(letter) or run_in_round(letter, number)
    )
    result, rows, left_out = compared(
        "a.replay.json", "b.replay.json", "c.replay.json", "--repeats", 3
    )
    assert (result.returncode, [row["model"] for row in rows]) == (1, ["a", "c"])
    assert left_out == ["b.replay.json replay 1 thread: no kernel for it"]
    assert [letter for letter, _ in begun].count("b") == 1
    result = edgemeter("compare", "a.replay.json", "b.replay.json")
    assert (result.returncode, result.stdout) == (1, "")
    assert (
        "no two sides can be compared: b.replay.json replay 1 thread: no kernel for it"
        in result.stderr
    )
    play(monkeypatch, run_in_round, {0: ConfigError("it is damaged")})
    _, rows, left_out = compared("a.replay.json", "b.replay.json", "c.replay.json", "--repeats", 3)
    assert ([row["model"] for row in rows], left_out) == (
        ["b", "c"],
        ["a.replay.json replay 1 thread: it is damaged"],
    )
    result = edgemeter("compare", "a.replay.json", "b.replay.json")
    assert (result.returncode, "it is damaged" in result.stderr) == (2, True)


@pytest.mark.usefixtures("models")
def test_ctrl_c_compares_what_is_there(monkeypatch):
    """The runs that had ended are shown, and the exit status is that of an interruption."""
    play(
        monkeypatch,
        lambda letter, number: KeyboardInterrupt() if number == 3 else run_in_round(letter, number),
    )
    result, rows, _ = compared("a.replay.json", "b.replay.json", "--repeats", 9)
    assert (
        result.returncode,
        [row["runs"] for row in rows],
        rows[1]["latency_p50_ms_outcome"],
    ) == (130, [3, 3], "better")
    assert "interrupted: 6 runs ended," in result.stderr
    play(
        monkeypatch,
        lambda letter, number: (
            KeyboardInterrupt() if letter == "b" else run_in_round(letter, number)
        ),
    )
    result = edgemeter("compare", "a.replay.json", "b.replay.json")
    assert (result.returncode, result.stdout) == (130, "")


@pytest.mark.usefixtures("models")
def test_a_saved_run_stands_for_its_case_in_its_session(monkeypatch):
    """The model beside it is measured with its settings, unless an option overrides them."""
    play(monkeypatch, run_in_round)
    edgemeter(
        "compare",
        "a.replay.json",
        "c.replay.json",
        "--repeats",
        3,
        "--threads",
        2,
        "--mode",
        "rapid",
    )
    begun = play(monkeypatch, run_in_round, first_id=50)
    result, rows, _ = compared("00000001", "b.replay.json", "--repeats", 3)
    assert (result.returncode, begun) == (0, [("b", 0), ("b", 1), ("b", 2)])
    assert [(row["model"], row["runs"], row["threads"], row["mode"]) for row in rows] == [
        ("a", 3, 2, "rapid"),
        ("b", 3, 2, "rapid"),
    ]
    assert rows[1]["latency_p50_ms_outcome"] == "better"
    assert (
        result.stderr.splitlines()[-1]
        == "saved as 00000001 and 00000051: edgemeter compare 00000001 00000051"
    )
    with pytest.raises(ConfigError, match="none of the sides is a model"):
        measure_sides(["00000001", "00000002"], Settings(), SessionSettings(), MATTERS_RATIO)
    _, rows, _ = compared("00000001", "b.replay.json", "--repeats", 3, "--threads", 1)
    assert [row["threads"] for row in rows] == [2, 1]


@pytest.mark.usefixtures("models")
def test_a_saved_run_on_data_takes_the_same_data_for_the_other_model(monkeypatch):
    """The record lacks the paths, so they are asked for before anything is measured.

    The suggested command has them.
    """
    dataset = DatasetInfo(name="photos", sha256="d" * 64, images=80)
    scored = {"dataset": dataset, "accuracy": make_accuracy(dataset_sha256="d" * 64)}
    play(monkeypatch, lambda letter, number: replace(run_in_round(letter, number), **scored))
    data = ("--data", "my photos", "--annotations", "a.json")
    result, _, _ = compared("a.replay.json", "a.replay.json", "--repeats", 3, *data)
    assert result.stderr.splitlines()[-1].endswith(
        "edgemeter compare 00000001 OTHER --data 'my photos' --annotations a.json"
    )
    begun = play(
        monkeypatch,
        lambda letter, number: replace(run_in_round(letter, number), **scored),
        first_id=50,
    )
    result = edgemeter("compare", "00000001", "b.replay.json", "--repeats", 3)
    assert (result.returncode, begun) == (2, [])
    assert "'00000001' was measured on 'photos'" in result.stderr
    assert "add --data PATH --annotations FILE" in result.stderr
    result, rows, _ = compared("00000001", "b.replay.json", "--repeats", 3, *data)
    assert (result.returncode, [row["accuracy_value"] for row in rows]) == (
        0,
        [scored["accuracy"].value] * 2,
    )


@pytest.mark.usefixtures("models")
def test_a_single_run_that_fails_is_an_error_beside_the_comparison(monkeypatch):
    """The exit status is that of `edgemeter run`."""
    play(
        monkeypatch,
        lambda letter, number: (
            MeasurementError("it died")
            if (letter, number) == ("a", 1)
            else run_in_round(letter, number)
        ),
    )
    result, rows, _ = compared("a.replay.json", "b.replay.json", "--repeats", 4)
    assert (result.returncode, [row["runs"] for row in rows]) == (1, [3, 4])
    assert "edgemeter: it died" in result.stderr.splitlines()


@pytest.mark.usefixtures("models")
def test_the_gate_and_the_choice_hold_for_models_too(monkeypatch):
    """B takes half as long as A, so it passes after A, and A fails after B.

    The faster one is recommended.
    """
    play(monkeypatch, run_in_round)
    for sides, status in (("ab", 0), ("ba", 1)):
        words = [f"{letter}.replay.json" for letter in sides]
        assert (
            edgemeter("compare", *words, "--repeats", 3, "--fail-on", "slower:5%").returncode
            == status
        )
    for limit, status in (("p50<=7ms", 0), ("p50<=1ms", 1)):
        result = edgemeter(
            "compare",
            "a.replay.json",
            "b.replay.json",
            "--repeats",
            3,
            "--require",
            limit,
            "--cheapest",
            "p50",
        )
        assert result.returncode == status


@pytest.mark.usefixtures("models")
def test_models_that_are_measured_elsewhere_are_compared_here_on_each_device(monkeypatch):
    """The models keep their order, and devices with runs of fewer than two are left out."""
    records = [
        replace(
            run_in_round(letter, number),
            device=device,
            repeat=number,
            session_started_at_ns=1_700_000_000_000_000_000,
        )
        for device, letters in (("pi-1", "ba"), ("pi-2", "ab"), ("pi-3", "a"))
        for number in range(3)
        for letter in letters
    ]
    records = [
        replace(run, model=replace(run.model, file=f"{run.model.name}.replay.json"))
        for run in records
    ]
    suites = []

    def measure(written, *_):
        suites.append(written)
        return SessionOutcome(records, [])

    monkeypatch.setattr(elsewhere, "measure_on_boards", measure)
    result, rows, left_out = compared(
        "a.replay.json", "b.replay.json", "--on", "ssh://pi", "--matters", "2%"
    )
    # There they are measured until their differences are decided.
    assert (result.returncode, suites[0].matters_ratio) == (0, 0.02)
    assert [(row["device"], row["model"], row["latency_p50_ms_outcome"]) for row in rows] == [
        ("pi-1", "a", None), ("pi-1", "b", "better"), ("pi-2", "a", None), ("pi-2", "b", "better"),
    ]  # fmt: skip
    assert left_out == ["pi-3: fewer than two of the models have a usable run there"]
    result = edgemeter(
        "compare", "a.replay.json", "b.replay.json", "--on", "ssh://pi", "--fail-on", "slower:5%"
    )
    assert (result.returncode, "B on pi-2" in result.stdout) == (0, True)


@pytest.mark.usefixtures("models")
def test_the_table_is_a_sentence_the_sides_and_what_to_do_next(monkeypatch):
    """The notes on the machine go to standard error, before the first run."""
    play(monkeypatch, run_in_round)
    result = edgemeter("compare", "a.replay.json", "b.replay.json", "--repeats", 4)
    same_as_snapshot(
        "compare-models",
        "\n".join(line for line in result.stdout.splitlines() if "runs," not in line),
    )


def test_wrong_usage_names_the_remedy(tmp_path):
    """The error is one line, printed before anything is measured."""
    for folder, arguments, says in in_folders(
        tmp_path,
        [
            (("a.replay.json",), "two sides"),
            (("a.replay.json", "a.replay.json", "--markdown"), "--markdown"),
            (("a.replay.json", "none.onnx", "--repeats", 2), "none.onnx"),
            (("a.replay.json", "runs.json"), "runs.json"),
            (("yolox-nanno", "yolox-tinny"), "did you mean yolox-n"),
            (("two.toml", "a.replay.json"), "2 cases"),
            (("a.replay.json", "b.replay.json", "--reference", "pi-1"), "--reference"),
            (
                ("a.replay.json", "b.replay.json", "c.replay.json", "--fail-on", "slower:3%"),
                "--fail-on takes two sides",
            ),
            (("a.replay.json", "b.replay.json", "--fail-on", "slower"), "slower"),
            (("a.replay.json", "b.replay.json", "--require", "p50>1ms"), "wrong sign"),
            (("x.json", "y.json", "--threads", 2), "--threads is for models"),
            (("--reference", "pi-1", "--data", "photos"), "--data is for models"),
            (("--device", "pi-1"), "--device is for models"),
            (("x.json", "a.replay.json", "--on", "ssh://pi"), "'x.json' is not a model"),
        ],
    ):
        write_replay(folder, "a")
        (folder / "two.toml").write_text(
            'name = "two"\n[[case]]\nmodel = "a.replay.json"\nthreads = [1, 2]\n'
        )
        result = edgemeter("compare", *arguments, cwd=folder)
        assert (result.returncode, result.stdout) == (2, ""), f"{arguments!r}"
        assert says in result.stderr, f"{arguments!r}: {result.stderr}"


@pytest.mark.usefixtures("models")
def test_a_note_on_the_machine_is_said_once_a_session(monkeypatch):
    """Each command that measures prints it once.

    It prints a note on a model below the model's figures, too.
    """
    grows = Violation(rule="memory-grows", numbers={"memory_grown_mb": 20.0, "queries": 64})
    verdict = Verdict(state="ok", notes=(grows,))
    play(monkeypatch, lambda letter, number: replace(run_in_round(letter, number), verdict=verdict))
    for command in ("run", "compare"):
        result = edgemeter(command, "a.replay.json", "b.replay.json", "--repeats", 3)
        notes = [
            line.strip()
            for line in (result.stdout + result.stderr).splitlines()
            if line.strip().startswith("note: ")
        ]
        assert sorted(line.split()[1] for line in notes) == ["resident", "the"]
