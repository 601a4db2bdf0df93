"""The named SQL files of this folder, each read once. Parameters are psycopg's `%(name)s`.

A line `-- part: <name>` stands for that file: CTEs that several statements have, each with its comma at the end.
"""

import re
from functools import cache
from importlib.resources import files

_PART = re.compile(r"(?m)^-- part: (\S+)\n")


@cache
def load(name: str) -> str:
    """Return the text of `<name>.sql` (`transitions/claim`), with its parts."""
    text = files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return _PART.sub(lambda found: load(found[1]), text)
