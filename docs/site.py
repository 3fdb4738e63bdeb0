"""Additions of the site to MkDocs.

They are pages at the project's root, and links that work there and in a file browser.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
AT_ROOT = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
LINK = re.compile(r"(\]\()(?!https?:)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie at the root, where people look for them."""
    for name in AT_ROOT:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between the root and docs/ into links of the site.

    Links to other files of the project become their names.
    """

    def target(found: "re.Match[str]") -> str:
        path = found[2]
        if page.file.src_uri in AT_ROOT:
            return found[1] + path.removeprefix("docs/")
        return found[1] + re.sub(
            rf"^(?:\.\./)+({'|'.join(map(re.escape, AT_ROOT))})$", _up(page) + r"\1", path
        )

    return LINK.sub(target, markdown)


def _up(page: Page) -> str:
    return "../" * page.file.src_uri.count("/")
