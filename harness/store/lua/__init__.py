"""The named Lua scripts of this folder, each read once. Each opens with its KEYS, ARGV, TTL and answer."""

from functools import cache
from importlib.resources import files


@cache
def load(name: str) -> str:
    """Return the text of `<name>.lua`."""
    return files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
