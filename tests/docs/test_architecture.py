"""Facts about the map of the code in CONTRIBUTING.md.

The drawing of the imports is right, and every file that the map names exists. `python -m
tests.docs.test_architecture` draws the imports again.
"""

import re
from collections import defaultdict
from pathlib import Path

from tests.fixtures.own_imports import FOLDER_OF, PACKAGES, ROOT, arrows, arrows_by_name

PAGE = ROOT / "CONTRIBUTING.md"
DRAWING = ROOT / "docs" / "internals" / "imports.mmd"


def folder_arrows(arrows: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Return for each folder which folders its files reach, of (path, module)."""
    folders: dict[str, set[str]] = defaultdict(set)
    for path, module in arrows:
        folder = str(Path(path).parent)
        folders[folder] |= {FOLDER_OF[module]} - {folder}
    return folders


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return every folder that `start` imports from, directly or through others."""
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        for folder in graph.get(ahead.pop(), ()):
            if folder not in reached:
                reached.add(folder)
                ahead.append(folder)
    return reached


def drawing() -> str:
    """Return the folders as a Mermaid flowchart.

    An arrow that follows from others is left out; an arrow by name is dotted.
    """
    direct, by_name = folder_arrows(arrows()), folder_arrows(arrows_by_name())
    folders = {*direct, *(target for targets in direct.values() for target in targets)} - set(
        PACKAGES
    )
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
        targets = direct.get(folder, set()) & folders
        direct_targets = [
            target
            for target in sorted(targets)
            if not any(target in reachable(direct, other) for other in targets - {target})
        ]
        lines += [
            f"  {folder.replace('/', '_')} --> {target.replace('/', '_')}"
            for target in direct_targets
        ]
        lines += [
            f"  {folder.replace('/', '_')} -.-> {target.replace('/', '_')}"
            for target in sorted(by_name.get(folder, ()))
        ]
    return "\n".join(lines) + "\n"


def test_the_trip_of_a_query_passes_twelve_rooms_at_most():
    """The trip of a query passes at most twelve rooms.

    Each step begins with its file, which exists; the other files of a step are in the same folder.
    """
    text = PAGE.read_text().partition("## The path of a query")[2].partition("\n## ")[0]
    steps = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
    assert 0 < len(steps) <= 12
    for step in steps:
        room, *siblings = (Path(name) for name in re.findall(r"`([\w/]+\.py)`", step))
        assert step.startswith(f"`{room}`")
        for path in (
            room,
            *(other if other.parts[1:] else room.parent / other for other in siblings),
        ):
            assert (ROOT / path).is_file(), path


def test_the_drawing_shows_the_imports_as_they_are():
    """The drawing shows the imports of the code.

    Whoever adds one has to draw it again (see above).
    """
    assert DRAWING.read_text() == drawing()


def test_every_file_that_the_page_names_exists():
    """Every file that the page names exists, because a wrong map leads readers astray."""
    named = set(
        re.findall(
            r"`((?:agent|collector|models|provisioning|tests|docs)/[\w/.-]*\w/?)`", PAGE.read_text()
        )
    )
    assert named
    assert [
        path for path in sorted(named) if "NAME" not in path and not (ROOT / path).exists()
    ] == []


if __name__ == "__main__":
    DRAWING.write_text(drawing())
