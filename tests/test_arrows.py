"""Facts about the structure.

Arrows run one way, a library has one home, and nothing heavy stands at the top of a module.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

from tests.fixtures.own_imports import (
    FOLDER_OF,
    INTERFACE,
    MODULES,
    NAME_OF,
    PACKAGES,
    ROOT,
    arrows,
    arrows_by_name,
    imports,
)

MAY_IMPORT = {
    "agent": set(),
    "collector": {"agent"},
    "models": {"agent"},
    "provisioning": {"agent"},
}
# The modules that all packages share; other packages import only these from the rest of the agent.
CORE = ("base", "contract")
OF_THE_AGENT = {
    "collector": {
        "bundle.archive", "bundle.signature", "bundle.write", "cli.bundle", "cli.run_output",
        # `edgemeter compare` measures models in turn.
        "cli.case_options", "cli.session", "cli.session_options", "measuring.elsewhere",
        "measuring.measure_suite", "measuring.settings", "measuring.suites",
        "session.checks", "session.run_plan", "session.session",
        "delivery.outbox_file",
        "ledger.chunks", "ledger.ledger", "ledger.ledger_file", "ledger.presence",
        "ledger.quarantine", "ledger.retention",
        "ledger.rows_anew", "ledger.run_history", "ledger.run_row", "ledger.sqlite_ledger",
        "machine.board_limits", "machine.power_range",
        "verdict.siblings",
        "verdict.words",
    },
    # `edgemeter benchmark` measures what it converted, as `compare` does.
    "models": {
        "cli.case_options", "cli.session_options", "measuring.suites", "power.detect",
        "session.checks", "datasets.dataset", "sandbox.run_grant", "engine.inspection",
        "recognition.recognise", "runtimes", "runtimes.noise", "runtimes.pytorch",
        "sandbox.bubblewrap", "tasks", "vision.preprocess",
    },
    "provisioning": {
        "measuring.settings",
        "datasets.dataset", "datasets.readers", "datasets.yolo", "doctor.examination",
        "recognition.recognise", "session.checks",
    },
}  # fmt: skip
# Files that reach another package by name, and why: none of them can import it.
BY_NAME = {
    "agent/base/model_names.py": (
        "a model may be named where the package `models` is not needed otherwise"
    ),
    "agent/measuring/elsewhere.py": "`--on` measures on boards as the fleet reaches them",
    "agent/cli/config.py": "`edgemeter config rules` shows the agent's rules and the collector's",
    "agent/cli/main.py": "`edgemeter` is one command of four packages",
    "agent/settings/files.py": "`edgemeter config check` knows the files of all packages",
    "models/cli/benchmark.py": (
        "`edgemeter benchmark` compares what it converted, which is the collector's"
    ),
    "models/cli/main.py": "`edgemeter models` also has commands of the agent and the collector",
}
# A library's errors are mapped where it is wrapped, so it is wrapped in one place; torch is what
# the models are made with.
ONE_HOME = (
    "PIL", "paho", "amqtt", "influxdb_client", "cryptography", "tflite_runtime", "psycopg",
    "starlette", "uvicorn",
)  # fmt: skip
HEAVY = (
    "cv2",
    "ai_edge_litert", "amqtt", "apprise", "cryptography", "executorch", "hailo_platform",
    "influxdb_client", "jtop",
    "ncnn", "onnxruntime", "openvino", "paho", "psycopg", "pyjoulescope_driver", "pynvml",
    "serial", "tensorrt", "tflite_runtime", "torch", "xllamacpp",
)  # fmt: skip
# Modules that import PyTorch at the top: only a function imports them.
BUILDS = {
    "models/convert/torch_program.py",
}
# The modules of a session, and the runtimes that it asks for their libraries.
BESIDE_A_RUN = tuple(
    f"edgemeter.agent.{name}"
    for name in (
        "measuring.measure_suite",
        "cli.run_output",
        "session.session",
        "runtimes.replay",
        "runtimes.litert",
        "runtimes.onnx_runtime",
    )
)
OWN = {path.stem for path in INTERFACE.glob("_*.py")}


def is_agent(name: str) -> bool:
    """Return whether `name` is a module of the agent."""
    return name.startswith("edgemeter.agent.")


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        reached: set[str] = set()
        ahead = [start]
        while ahead:
            for node in graph.get(ahead.pop(), ()):
                if node not in reached:
                    reached.add(node)
                    ahead.append(node)
        reach[start] = reached
    groups = {
        tuple(sorted(other for other in reach[node] if node in reach.get(other, ())))
        for node in reach
        if node in reach[node]
    }
    return [list(group) for group in sorted(groups)]


def test_arrows_between_the_packages_run_one_way():
    """The agent imports no other package; they import the agent and not each other."""
    for path in MODULES:
        package = path.relative_to(ROOT).parts[0]
        imported = {
            name.split(".")[1] for name, _ in imports(path) if name.startswith("edgemeter.")
        }
        assert imported <= MAY_IMPORT[package] | {package}, path


def test_only_commands_import_click():
    """The library measures and compares without a command line, which stands on it."""
    below = [
        str(path.relative_to(ROOT))
        for path in (*MODULES, *INTERFACE.glob("*.py"))
        if "cli" not in path.relative_to(ROOT).parts
        and any(name.split(".")[0] == "click" for name, _ in imports(path))
    ]
    assert below == []


def test_only_commands_import_what_commands_share():
    """A room that needs `base/cli`, or the `cli` of a package, is a command itself."""
    assert [
        (path, module)
        for path, module in arrows()
        if ".cli." in f"{module}." and "/cli/" not in path
    ] == []


def test_nothing_imports_the_python_interface():
    """Nothing imports `edgemeter` itself (`src/edgemeter`), which stands on the packages.

    It measures with the agent and reads with the collector.
    """
    names = {"measure", "compare", "energy", "load", "Record"}
    for path in MODULES:
        assert not {
            name
            for name, _ in imports(path)
            if name.removeprefix("edgemeter.") in names or name.startswith("edgemeter._")
        }, path
    for path in INTERFACE.glob("*.py"):
        assert {
            name.split(".")[1] for name, _ in imports(path) if name.startswith("edgemeter.")
        } <= {"agent", "collector", *OWN}, path


def test_the_others_import_the_shared_core_and_a_short_list():
    """Other packages import the agent's core and a short list.

    Code that measures stays on the device; code that is needed twice moves into the core.
    """
    for package, modules in OF_THE_AGENT.items():
        imported = {
            target.removeprefix("edgemeter.agent.")
            for path, target in arrows()
            if path.startswith(package) and is_agent(target)
        }
        assert {name for name in imported if name.split(".")[0] not in CORE} == modules, package
    assert set(OF_THE_AGENT) == {*PACKAGES} - {"agent"}


def test_few_files_reach_another_package_by_name():
    """A text that names a module is an arrow too, and each file that needs one is listed.

    The list states the reason.
    """
    assert {path for path, _ in arrows_by_name()} == set(BY_NAME)
    assert [(path, module) for path, module in arrows_by_name() if module not in FOLDER_OF] == []


def test_the_core_imports_nothing_else_of_ours():
    """The core imports no other code of ours.

    The contract stands on the base, the base on nothing.
    """
    allowed = {
        "agent/base": ("edgemeter.agent.base",),
        "agent/contract": ("edgemeter.agent.base", "edgemeter.agent.contract"),
    }
    for folder, names in allowed.items():
        assert [
            arrow
            for arrow in arrows()
            if arrow[0].startswith(folder) and not arrow[1].startswith(names)
        ] == []


def test_no_files_import_each_other_in_a_circle():
    """Files import each other in no circle, also counting imports in functions and for types."""
    graph = defaultdict(set)
    for path, target in arrows():
        graph[NAME_OF[path]].add(target)
    assert circles(graph) == []


def test_no_folders_import_each_other_in_a_circle():
    """Of any two folders, at most one imports the other."""
    graph = defaultdict(set)
    for path, target in arrows():
        if FOLDER_OF[NAME_OF[path]] != FOLDER_OF[target]:
            graph[FOLDER_OF[NAME_OF[path]]].add(FOLDER_OF[target])
    assert circles(graph) == []


def test_package_roots_hold_subpackages_only():
    """Package roots hold subpackages only: commands live in `cli/`, the rest in named folders."""
    assert [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
        if path.name != "__init__.py"
    ] == []


def test_what_runs_beside_a_measurement_needs_no_numpy():
    """Code beside a measurement needs no NumPy, which would take 9 MB of memory.

    A session is in memory while its run is measured.
    """
    waiting, reached = [*BESIDE_A_RUN], set[str]()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        path = next((ROOT / path for path, module in NAME_OF.items() if module == name), None)
        for imported, at_top in imports(path) if path else ():
            assert not at_top or imported.split(".")[0] != "numpy", path
            parts = imported.split(".")
            outer = {
                ".".join(parts[:length]) for length in range(3, len(parts) + 1)
            } & FOLDER_OF.keys()
            waiting += outer - reached if at_top else ()
    assert len(reached) > len(BESIDE_A_RUN)


def test_a_wrapped_library_has_one_home():
    """A wrapped library is imported in one module, where its errors are mapped."""
    homes = defaultdict(set)
    for path in MODULES:
        for name, _ in imports(path):
            homes[name.split(".")[0]].add(str(path.relative_to(ROOT)))
    doubled = {library: sorted(homes[library]) for library in ONE_HOME if len(homes[library]) > 1}
    assert doubled == {}


def test_nothing_heavy_is_imported_before_it_is_needed():
    """Heavy libraries are imported on use: a base install lacks them and starts in 0.1 s."""
    early = [
        (str(path.relative_to(ROOT)), name)
        for path in MODULES
        for name, at_top in imports(path)
        if at_top and name.split(".")[0] in HEAVY and str(path.relative_to(ROOT)) not in BUILDS
    ]
    assert early == []


def test_no_module_is_named_for_what_it_is_not():
    """No module has a name like `utils`, as drawers without a label collect everything."""
    assert not {path.stem for path in MODULES} & {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "core",
        "manager",
    }


def test_tests_share_fixtures_and_not_the_files_of_other_tests():
    """Tests share code through tests/fixtures, and not through other tests' files.

    So a test file can be read, moved and run by itself.
    """
    pattern = re.compile(r"^\s*from (tests\.[a-z0-9_.]*\.test_[a-z0-9_]+) import", re.MULTILINE)
    assert {
        name
        for folder in ("tests", "tools")
        for path in (ROOT / folder).rglob("*.py")
        for name in pattern.findall(path.read_text())
    } == set()
