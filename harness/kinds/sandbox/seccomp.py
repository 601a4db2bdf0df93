"""The filter of system calls: what holds memory that no limit counts, or looks into another process, fails with EPERM.

A list of what is forbidden, not of what is allowed: the sandbox doesn't stand on it alone. Namespaces keep the network,
the files and the other processes away; this closes what they leave open.
"""

import errno
import platform
import struct
from typing import Final

# Numbers on (x86_64, aarch64).
_FORBIDDEN: Final = {
    "memfd_create": (319, 279),  # memory that is no file of the tmpfs and no page of a process
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "mq_open": (240, 180),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "syslog": (103, 116),
}
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32_BIT: Final = 0x40000000  # the same calls under other numbers

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


def is_known(machine: str | None = None) -> bool:
    """Whether there is a filter for this machine's processor."""
    return (machine or platform.machine()) in _ARCHITECTURES


def program(machine: str | None = None) -> bytes:
    """Return the filter as the kernel takes it. Raises: KeyError for a processor that isn't known.

    >>> len(program("x86_64")) % 8, program("aarch64")[:2]
    (0, b' \\x00')
    """
    column, architecture = _ARCHITECTURES[machine or platform.machine()]
    numbers = sorted({one[column] for one in _FORBIDDEN.values()})
    left = len(numbers) + 1  # instructions from the x32 test to the two returns
    steps = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, 0),
        (_JUMP_AT_LEAST, left, 0, _X32_BIT),
        *((_JUMP_EQUAL, left - 1 - at, 0, number) for at, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
