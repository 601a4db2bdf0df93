"""What one run in the sandbox may take.

`memory_bytes` and `disk_bytes` are both memory of this machine (the files lie in a tmpfs): one run holds at most their
sum, and a little for its processes' pages in the kernel.
"""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Of one run. `wall_s` counts from the start of the code; `processes` counts threads too.

    `memory_bytes`: of all its processes together, and the address space of each. `disk_bytes`: its files, given ones
    too. `output_bytes`: of what it prints, both streams. `results`, `results_bytes`: files that it leaves to be kept.
    """

    wall_s: float = 60.0
    cpu_s: int = 60
    memory_bytes: int = 512 * MIB
    disk_bytes: int = 128 * MIB
    files: int = 10_000
    processes: int = 32
    output_bytes: int = 256 * 1024
    results: int = 20
    results_bytes: int = 32 * MIB
