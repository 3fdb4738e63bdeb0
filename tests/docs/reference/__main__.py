"""Write every page of docs/reference."""

from tests.docs.reference.pages import FOLDER, PAGES, content

for name in PAGES:
    (FOLDER / name).write_text(content(name), encoding="utf-8")
