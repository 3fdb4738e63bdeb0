"""What new users type in their first hour, by what they came for: their extras, and their commands until the answer and past it."""

import textwrap
from dataclasses import dataclass

SAMPLE = ("edgemeter models sample trial", "cd trial")
SCORED = "--data photos/ --annotations instances.json"
TWO = f"edgemeter compare model.tflite model_int8.tflite {SCORED} --mode rapid"
TEST = """\
import math

import edgemeter


def test_speed():
    run = edgemeter.measure(lambda n: sum(map(math.sqrt, range(n))), 20_000, name="roots", mode="rapid")
    assert run.latency.p50_ms < 1000
"""
SCRIPT = """\
import edgemeter

record = edgemeter.measure(sorted, list(range(50_000, 0, -1)), name="sort", mode="rapid")
print(record.latency.p50_ms, record.latency.p50_low_ms, record.latency.p50_high_ms, record.verdict.state)
"""
SUITE = """\
name = "review"

[defaults]
mode = "rapid"
data = "photos"
annotations = "instances.json"

[[case]]
model = ["model.tflite", "model_int8.tflite"]
"""
ROUNDS = "for round in 1 2 3; do for side in base new; do edgemeter run suite.toml --repeats 1 --output runs/$side/$round.json; done; done"
ALERTS = """\
[[rule]]
name = "five per cent"
kind = "step"
metrics = ["latency"]
at_least = 5.0
channels = ["team chat"]

[[channel]]
name = "team chat"
kind = "webhook"
url = "http://hooks.example/edgemeter"
"""


def written(name: str, text: str) -> str:
    """Return the command that writes a file."""
    return f"cat > {name} <<'END'\n{textwrap.dedent(text)}END"


@dataclass(frozen=True, slots=True)
class Journey:
    """A way through the first hour: `extras` are those of its page's install line, with further `packages`; `answer` gives what was sought.

    Commands after the answer are those that the page goes on with, and mistakes that are easily made.
    """

    name: str
    page: str
    extras: str
    commands: tuple[str, ...]
    answer: str
    packages: tuple[str, ...] = ()


JOURNEYS = (
    Journey(
        "one model", "start/one-model.md", "litert,onnx,report",
        (
            *SAMPLE, "edgemeter doctor", "edgemeter run model.onnx --mode rapid",
            f"edgemeter run model.onnx {SCORED} --mode rapid --threads 2",
            "edgemeter models profile --model model.onnx --queries 5", "edgemeter runs", "edgemeter report -o report.html",
            "edgemeter run modle.onnx", "edgemeter run model.onnx --data fotos/ --annotations instances.json",
        ),
        "edgemeter run model.onnx --mode rapid",
    ),
    Journey(
        "two models", "start/two-models.md", "litert,onnx",
        (*SAMPLE, TWO, "edgemeter compare", "edgemeter compare model.tflite"),
        TWO,
    ),
    Journey(
        "Pi 5 and Coral", "start/pi5-coral.md", "coral",
        (
            *SAMPLE, "edgemeter doctor", "edgemeter sensors --all", "edgemeter sensors read pi5_pmic",
            "edgemeter run ssdlite-mobiledet-edgetpu", f"edgemeter run model.tflite {SCORED} --threads 4 --repeats 1 --mode rapid",
        ),
        f"edgemeter run model.tflite {SCORED} --threads 4 --repeats 1 --mode rapid",
    ),
    Journey(
        "fleet and Grafana", "start/fleet-grafana.md", "collector,litert",
        (
            *SAMPLE, "edgemeter collector up > collector.log 2>&1 & sleep 5; cat collector.log", written("suite.toml", SUITE),
            "edgemeter run suite.toml --repeats 1 --broker 127.0.0.1 --device pi5-01 --no-save", "edgemeter collector devices",
            written("alerts.toml", ALERTS), "edgemeter trend alerts check --rules alerts.toml --dry-run",
            "edgemeter collector deploy-files deploy", "ls deploy/grafana/dashboards",
        ),
        "edgemeter collector devices",
    ),
    Journey(
        "demo", "index.md", "demo", ("edgemeter demo --output report.html", "edgemeter run YOUR.onnx"),
        "edgemeter demo --output report.html",
    ),
    Journey(
        "pull requests", "start/pull-requests.md", "litert,onnx",
        (
            *SAMPLE, written("suite.toml", SUITE), "mkdir -p runs/base runs/new",
            ROUNDS,
            "edgemeter compare runs/base runs/new --format markdown --fail-on slower:500%,ap:0.5",
            "edgemeter compare runs/base runs/new --fail-on slower:3%",
        ),
        "edgemeter compare runs/base runs/new --format markdown --fail-on slower:500%,ap:0.5",
    ),
    Journey(
        "signed bundles", "bundle.md", "litert,sign",
        (
            *SAMPLE, "edgemeter bundle keygen lab.key",
            f"edgemeter run model.tflite model_int8.tflite {SCORED} --mode rapid --bundle results --signing-key-file lab.key",
            "edgemeter bundle verify results/ --public-key lab.key.pub",
        ),
        "edgemeter bundle verify results/ --public-key lab.key.pub",
    ),
    Journey(
        "a function, from Python and pytest", "python.md", "",
        (
            written("sort.py", SCRIPT), "python sort.py", written("test_speed.py", TEST), "pytest -q test_speed.py", "edgemeter runs",
        ),
        "pytest -q test_speed.py", ("pytest",),
    ),
    Journey(
        "language models", "tasks/language-models.md", "llama",
        (
            "edgemeter models list", "edgemeter run --model edgemeter-notes_q4_0.gguf --prompt-tokens 64 --output-tokens 16 --mode rapid",
            "edgemeter compare edgemeter-notes_q4_0.gguf edgemeter-notes_q8_0.gguf --prompt-tokens 64 --output-tokens 16 --mode rapid",
        ),
        "edgemeter compare edgemeter-notes_q4_0.gguf edgemeter-notes_q8_0.gguf --prompt-tokens 64 --output-tokens 16 --mode rapid",
    ),
    Journey(
        "benchmark", "tasks/models.md", "convert",
        (
            *SAMPLE, "edgemeter benchmark model.onnx --data photos/ --annotations instances.json",
            f"edgemeter benchmark model.onnx --calibration photos/ {SCORED} --mode rapid --output converted",
            "ls converted", "edgemeter benchmark",
        ),
        f"edgemeter benchmark model.onnx --calibration photos/ {SCORED} --mode rapid --output converted",
    ),
)  # fmt: skip
