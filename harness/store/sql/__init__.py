"""The named SQL files of this folder, each read once. Parameters are psycopg's `%(name)s`."""

from functools import cache
from importlib.resources import files


@cache
def load(name: str) -> str:
    """Return the text of `<name>.sql` (`transitions/claim`)."""
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
