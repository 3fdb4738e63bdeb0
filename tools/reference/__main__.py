"""Write every page of docs/reference, and the files that they link to."""

from tools.reference.pages import ATTACHMENTS, FOLDER, PAGES, content

for name in (*PAGES, *ATTACHMENTS):
    (FOLDER / name).parent.mkdir(exist_ok=True)
    # As it is: CSV ends its lines as RFC 4180 has them.
    (FOLDER / name).write_bytes(content(name).encode())
