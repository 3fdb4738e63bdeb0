"""Facts about docs/architecture.md: its drawing is the code's, and every file that it names exists.

`python tests/docs/test_architecture.py` draws it again.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]
PACKAGES = ("agent", "collector", "models", "provisioning")
START = "```mermaid\n"


def folder_arrows() -> dict[str, set[str]]:
    """Return for each folder which folders its files import from."""
    folder_of = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(("edgemeter", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
            folder_of[name] = str(path.parent.relative_to(ROOT))
    arrows: dict[str, set[str]] = defaultdict(set)
    for name, folder in folder_of.items():
        path = ROOT.joinpath(*name.split(".")[1:])
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("edgemeter."):
                targets = {f"{node.module}.{alias.name}" for alias in node.names}
                arrows[folder] |= {folder_of.get(target) or folder_of[node.module] for target in targets} - {folder}
    return arrows


def reachable(arrows: dict[str, set[str]], start: str) -> set[str]:
    """Return every folder that `start` imports from, directly or through others."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for folder in arrows.get(ahead.pop(), ()):
            if folder not in found:
                found.add(folder)
                ahead.append(folder)
    return found


def drawing() -> str:
    """Return the folders as a Mermaid flowchart; an arrow that follows from others is left out."""
    arrows = folder_arrows()
    folders = {*arrows, *(target for targets in arrows.values() for target in targets)} - set(PACKAGES)
    lines = ["flowchart TD"]
    for package in PACKAGES:
        lines.append(f"  subgraph {package}")
        lines += [
            f'    {folder.replace("/", "_")}["{folder.removeprefix(f"{package}/")}"]'
            for folder in sorted(folders)
            if folder.startswith(f"{package}/")
        ]
        lines.append("  end")
    for folder in sorted(folders):
        direct = arrows.get(folder, set()) & folders
        kept = [target for target in sorted(direct) if not any(target in reachable(arrows, other) for other in direct - {target})]
        lines += [f"  {folder.replace('/', '_')} --> {target.replace('/', '_')}" for target in kept]
    return "\n".join(lines) + "\n"


def with_drawing(page: str) -> str:
    """Return the page with the drawing as it has to be."""
    before, _, rest = page.partition(START)
    return f"{before}{START}{drawing()}```{rest.partition('```')[2]}"


def test_the_drawing_shows_the_imports_as_they_are():
    """Whoever adds an arrow sees it here, and draws again (see above)."""
    assert PAGES[0].read_text() == with_drawing(PAGES[0].read_text())


def test_every_file_that_the_pages_name_exists():
    """A map that names what is gone leads astray."""
    for page in PAGES:
        named = set(re.findall(r"`((?:agent|collector|models|provisioning|tests|docs)/[\w/.-]*\w/?)`", page.read_text()))
        assert named
        assert [path for path in sorted(named) if "NAME" not in path and not (ROOT / path).exists()] == [], page


if __name__ == "__main__":
    PAGES[0].write_text(with_drawing(PAGES[0].read_text()))
