"""Facts about the structure: arrows run one way, a library has one home, nothing heavy stands at the top of a module."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "collector", "models", "provisioning")
MAY_IMPORT = {"agent": set(), "collector": {"agent"}, "models": {"agent"}, "provisioning": {"agent"}}
# What the collector needs of the agent: the record and the ways to pass it on (a bundle is one of them), never what measures.
OF_THE_AGENT = {"broker_options", "bundle", "config", "delivery", "errors", "finite_range", "health", "record_parts", "records", "samples"}
# A library's errors are mapped where it is wrapped, so it is wrapped in one place; torch is what the models are made with.
ONE_HOME = ("PIL", "hotcoco", "paho", "amqtt", "influxdb_client", "cryptography", "tflite_runtime", "pyarrow")
HEAVY = (
    "ai_edge_litert", "amqtt", "cryptography", "hotcoco", "influxdb_client", "jtop", "ncnn", "onnxruntime", "openvino", "paho",
    "pyarrow", "pyjoulescope_driver", "pynvml", "serial", "smbus2", "tensorrt", "tflite_runtime", "torch",
)  # fmt: skip
# Modules that only `models build` imports, when it is called.
BUILDS = {"models/detector.py", "models/training.py", "models/export.py", "models/conversion.py"}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> set[tuple[str, bool]]:
    """Return the modules that a file imports, and whether at the top (outside functions and TYPE_CHECKING)."""
    found: set[tuple[str, bool]] = set()

    def visit(node: ast.AST, at_top: bool) -> None:  # noqa: FBT001
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.update((alias.name, at_top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.update((f"{child.module}.{alias.name}", at_top) for alias in child.names)
            inside = isinstance(child, ast.FunctionDef | ast.Lambda) or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            )
            visit(child, at_top and not inside)

    visit(ast.parse(path.read_text()), at_top=True)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_between_the_packages_run_one_way(package):
    """The agent imports none of the other three; they import the agent and not each other."""
    for path in (ROOT / package).rglob("*.py"):
        ours = {name.split(".")[1] for name, _ in imports(path) if name.startswith("edgemeter.")}
        assert ours <= MAY_IMPORT[package] | {package}, path


def test_the_collector_imports_the_record_and_the_ways_to_pass_it_on():
    """What measures stays on the device."""
    for path in (ROOT / "collector").rglob("*.py"):
        taken = {name.split(".")[2] for name, _ in imports(path) if name.startswith("edgemeter.agent.")}
        assert taken <= OF_THE_AGENT, path
        # Of what a device says of its health, the message; not how it finds out.
        assert {name.split(".")[3] for name, _ in imports(path) if name.startswith("edgemeter.agent.health.")} <= {"contract"}, path


def test_the_record_knows_nothing_of_who_makes_or_reads_it():
    """The contract imports errors only."""
    assert {name for name, _ in imports(ROOT / "agent/records.py") if name.startswith("edgemeter")} == {
        "edgemeter.agent.errors.ConfigError"
    }


def test_a_wrapped_library_has_one_home():
    """Two modules that import it are two places where its errors have to be mapped."""
    homes = defaultdict(set)
    for path in MODULES:
        for name, _ in imports(path):
            homes[name.split(".")[0]].add(str(path.relative_to(ROOT)))
    doubled = {library: sorted(homes[library]) for library in ONE_HOME if len(homes[library]) > 1}
    assert doubled == {}


def test_nothing_heavy_is_imported_before_it_is_needed():
    """A base install has none of these, and starts in a tenth of a second."""
    early = [
        (str(path.relative_to(ROOT)), name)
        for path in MODULES
        for name, at_top in imports(path)
        if at_top and name.split(".")[0] in HEAVY and str(path.relative_to(ROOT)) not in BUILDS
    ]
    assert early == []


def test_no_module_is_named_for_what_it_is_not():
    """Drawers without a label collect everything."""
    assert not {path.stem for path in MODULES} & {"utils", "util", "helpers", "helper", "common", "misc", "core", "manager"}
