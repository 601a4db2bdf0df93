"""What a check of a deployment says: a line with a level, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """`check`: which one; `says`: what was seen, without secrets; `fix`: what mends it ("" when nothing has to be)."""

    check: str
    level: Level
    says: str
    fix: str = ""
