"""Prints the statements of each room, and by how many they changed.

Usage: `python -m tools.statements [REVISION]`. A statement is a node of the syntax tree, so neither
long lines nor comments change the count.
"""

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "collector", "models", "provisioning", "src", "tests", "tools")


def git(*arguments: str) -> bytes:
    """Return what git prints about this checkout."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def statements_by_room(revision: str) -> Counter[str]:
    """Return the statements of Python in each room of the packages at a revision."""
    present = set(git("ls-tree", "--name-only", revision).decode().split())
    archive = git("archive", revision, *sorted(present.intersection(PACKAGES)))
    counts: Counter[str] = Counter()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            content = files.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                folder = PurePosixPath(member.name).parent
                nodes = ast.walk(ast.parse(content.read()))
                counts["/".join(folder.parts[:2])] += sum(isinstance(n, ast.stmt) for n in nodes)
    return counts


def base_revision() -> str:
    """Return where this branch left main, or on main itself the commit before."""
    head = git("rev-parse", "HEAD").decode().strip()
    main = "origin/main" if git("branch", "--remotes", "--list", "origin/main") else "main"
    base = git("merge-base", "HEAD", main).decode().strip()
    return f"{head}^" if base == head else base


def print_statements(base: str) -> None:
    """Print a line for each room, with the change against a revision, and one for each package."""
    now, before = statements_by_room("HEAD"), statements_by_room(base)
    rooms = sorted(now | before)
    for package in PACKAGES:
        of_package = [room for room in rooms if room.split("/")[0] == package]
        for room in of_package:
            print(f"{room:30}{now[room]:7,}{now[room] - before[room]:+7,}")
        total = sum(now[room] for room in of_package)
        change = total - sum(before[room] for room in of_package)
        print(f"{'= ' + package:30}{total:7,}{change:+7,}")


if __name__ == "__main__":
    print_statements(sys.argv[1] if len(sys.argv) > 1 else base_revision())
