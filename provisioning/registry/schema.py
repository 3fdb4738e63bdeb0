"""The tables of the registry: `schema.sql` beside this file."""

import re
from pathlib import Path

VERSION = 2
SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
TABLES = tuple(re.findall(r"CREATE TABLE (\w+) \(", SCHEMA))
SERVICE = SCHEMA.partition(";\n")[0]
# What files of earlier versions lack.
BANS = SCHEMA[SCHEMA.index("CREATE TABLE bans") :].replace("TABLE", "TABLE IF NOT EXISTS", 1)
