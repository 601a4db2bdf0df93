"""The simulator: the same policy and state table in virtual time, without Django, database, broker or real clock.

`parse` reads a scenario, `run` plays it, `report` says what came of it. Same scenario and seed, same report.
"""

from pathlib import Path

SCENARIOS = Path(__file__).resolve().parent / "scenarios"
