"""Facts about the files by which others know the project.

They are valid by their schemas and linters, and agree about the project's address. No image is
built and no workflow runs here; the programs below see in the files is all that is checked of
these.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fixtures.rows import table_row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXAMPLES = [f"docs/review/github-{name}.yml" for name in ("measure", "comment")]
SCHEMAS = {
    "github-workflows": [
        *(f".github/workflows/{name}.yml" for name in ("ci", "release")),
        *EXAMPLES,
    ],
    "github-actions": ["action.yml"],
    "github-issue-forms": [
        f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "figure", "board")
    ],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "dependabot": [".github/dependabot.yml"],
    "gitlab-ci": ["docs/review/gitlab.yml"],
    "citation-file-format": ["CITATION.cff"],
    "compose-spec": ["collector/deploy/compose.yaml"],
}  # fmt: skip
WORKFLOWS = [".github", "action.yml", *EXAMPLES]
DOCKERFILES = ["collector/deploy/agent.Dockerfile", "collector/deploy/collector.Dockerfile"]


def yaml_of(path):
    return yaml.safe_load((ROOT / path).read_text())


def checked(*command):
    """Run a linter of this environment at the project's root, and fail with what it said."""
    program = shutil.which(command[0], path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"{command[0]} has no wheel for this machine")
    completed = subprocess.run(
        [program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.services
def test_a_file_has_the_form_that_its_reader_expects():
    """Each file is valid by the schema that check-jsonschema brings, without a network."""
    for schema, paths in SCHEMAS.items():
        options = ["--data-transform", schema] if schema == "gitlab-ci" else []
        checked("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *options, *paths)


def test_every_file_of_these_kinds_is_checked():
    """The list above has every workflow and template, so that a new one is checked, too."""
    named = {path for paths in SCHEMAS.values() for path in paths}
    files = {
        path.relative_to(ROOT).as_posix()
        for pattern in (
            ".github/**/*.yml",
            "docs/review/*.yml",
            "action.yml",
            "collector/deploy/*.yaml",
        )
        for path in ROOT.glob(pattern)
    }
    assert files - named == {".github/zizmor.yml"}


@pytest.mark.services
def test_a_workflow_leaks_no_right():
    """The linter zizmor finds no leak of rights in any workflow.

    There is no stranger's expression in a script, no credential left behind, and no right that is
    not needed.
    """
    checked("zizmor", "--offline", "--quiet", "--config", ".github/zizmor.yml", *WORKFLOWS)


@pytest.mark.services
def test_a_dockerfile_is_one_that_a_linter_takes():
    """The linter `hadolint` has no complaint about any Dockerfile."""
    checked("hadolint", *DOCKERFILES)


def test_an_image_runs_without_root_and_reports_its_health():
    """An image has no root user, a health check, and no architecture of its own."""
    for path in DOCKERFILES:
        with table_row(path):
            text = (ROOT / path).read_text()
            assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["10001"]
            assert "\nHEALTHCHECK " in text
            assert "--platform linux/amd64,linux/arm64" in text
            instructions = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
            assert not re.search(r"amd64|x86_64|arm64|aarch64", instructions)


def test_every_action_and_image_is_pinned_by_its_hash():
    """Every action and image is pinned by its hash, as a tag can be moved to other code.

    Our own action in an example is of the release that has it.
    """
    folders = (
        ROOT / name for name in (".github", "agent", "collector", "docs", "models", "provisioning")
    )
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in {".yml", ".yaml", ".Dockerfile"}
    ]
    pinned = []
    for path in (*files, ROOT / "action.yml"):
        for key, name in re.findall(
            r"^[ -]*(uses:|FROM|image:|container:) (\S+)", path.read_text(), re.MULTILINE
        ):
            digest = r"@[0-9a-f]{40}" if key == "uses:" else r"@sha256:[0-9a-f]{64}"
            with table_row(path.name, name):
                assert (
                    re.search(rf"{digest}$", name)
                    or name == f"edgemeter/edgemeter@v{PROJECT['version']}"
                )
            pinned.append(key)
    assert {*pinned} == {"uses:", "FROM", "image:"}


def test_an_image_installs_by_hash():
    """An image installs every package by hash, but for our own, which has none before it is built.

    The pins hold all that its extras need.
    """
    for path, extras in zip(DOCKERFILES, (("litert", "onnx"), ("collector",)), strict=True):
        with table_row(path):
            (pins,) = re.findall(
                r"pip install --no-cache-dir --require-hashes --requirement /wheels/(\S+)",
                (ROOT / path).read_text(),
            )
            assert (
                'pip install --no-cache-dir --no-deps --find-links /wheels "$EDGEMETER"'
                in (ROOT / path).read_text()
            )
            assert (ROOT / path).read_text().count("pip install") == 2
            names = set(
                re.findall(r"^([\w-]+)==", (ROOT / path).with_name(pins).read_text(), re.MULTILINE)
            )
            needs = [
                *PROJECT["dependencies"],
                *(need for extra in extras for need in PROJECT["optional-dependencies"][extra]),
            ]
            needs = [need for need in needs if "python_version <" not in need]
            assert {re.match(r"[\w-]+", need)[0] for need in needs} - names == {"edgemeter"}


def test_a_commit_fetches_nothing():
    """The hooks of pre-commit are the project's own programs, so a commit fetches nothing."""
    (repository,) = yaml_of(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert all(hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])


def test_a_hook_of_a_commit_names_files_that_exist():
    """A hook names existing files, or pytest would fail and refuse every commit."""
    (repository,) = yaml_of(".pre-commit-config.yaml")["repos"]
    named = [
        word
        for hook in repository["hooks"]
        for word in hook["entry"].split()
        if word.endswith(".py")
    ]
    assert named
    assert [word for word in named if not (ROOT / word).is_file()] == []


def test_every_address_of_the_project_is_the_one_in_its_metadata():
    """Pages, templates and workflows name the owner and the repository of the metadata.

    Another address would send people elsewhere.
    """
    home = PROJECT["urls"]["Homepage"]
    name = home.removeprefix("https://github.com/")
    folders = (ROOT / name for name in ("agent", "collector", "provisioning", "docs", ".github"))
    texts = [path for path in ROOT.iterdir() if path.is_file()] + [
        path for folder in folders for path in folder.rglob("*")
    ]
    for path in (
        path for path in texts if path.suffix in (".md", ".yml", ".yaml", ".toml", ".cff")
    ):
        text = path.read_text()
        assert all(
            repository == name
            for repository in re.findall(r"github\.com/([\w-]*edgemeter[\w-]*/[\w-]+)", text)
        ), path
        assert all(
            repository == name
            for repository in re.findall(r"uses: ([\w-]*edgemeter[\w-]*/[\w-]+)@", text)
        ), path


def test_the_release_workflow_attests_what_it_builds():
    """The release workflow attests wheel and sdist before anybody can fetch them."""
    jobs = yaml_of(".github/workflows/release.yml")["jobs"]
    steps = [step.get("uses", step.get("run", "")) for step in jobs["build"]["steps"]]
    built = next(index for index, step in enumerate(steps) if "-m build" in step)
    assert steps[built + 1].startswith("actions/attest-build-provenance@")
    assert jobs["publish"]["needs"] == "build"


def test_a_citation_names_this_project_and_its_version():
    """The citation has the name and version of the metadata, which a release could forget."""
    cited = yaml_of("CITATION.cff")
    assert (cited["version"], cited["license"], cited["repository-code"]) == (
        PROJECT["version"], PROJECT["license"], PROJECT["urls"]["Source"],
    )  # fmt: skip
    assert [author["name"] for author in cited["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
