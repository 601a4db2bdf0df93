"""What code in the sandbox can't do, and that nothing of it is left afterwards; as root's account, and as one's own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from harness.kinds import Cancelled, Permanent, sandbox
from harness.kinds.sandbox import cgroup, place, usage
from harness.kinds.sandbox.answer import Answer, Forged
from tests.stage import wait_until

LACK = sandbox.lack()
needs_sandbox = pytest.mark.skipif(LACK is not None, reason=f"no sandbox here: {LACK}")
CGROUPS = (Path("/sys/fs/cgroup/memory"),)  # of v1; one of v2 would have to be delegated
USER = 61_234  # nobody's; stands for the account of a worker that isn't root's


def ran(code: str, look: Callable[[], None] = lambda: None, **limits: float) -> sandbox.Finished:
    found = sandbox.run(code, limits=sandbox.Limits(**limits), look=look)  # type: ignore[arg-type]  # by name
    found.close()
    return found


def left(mark: str) -> list[int]:
    """The processes with the mark on their command line or in their environment, outside of this one."""
    found = []
    for one in Path("/proc").iterdir():
        try:
            words = (one / "cmdline").read_bytes() if one.name.isdigit() else b""
        except OSError:
            continue
        if mark.encode() in words and int(one.name) != os.getpid():
            found.append(int(one.name))
    return found


@needs_sandbox
def test_code_prints_and_leaves_files_and_gets_those_it_was_given() -> None:
    code = "import helper\nprint(helper.n, open('a.csv').read())\nopen('out/b.txt', 'w').write('kept')"
    given = [
        sandbox.Given(name=name, content=BytesIO(text), bytes=len(text))
        for name, text in (("helper.py", b"n = 7"), ("a.csv", b"x,y"))
    ]
    found = sandbox.run(code, given=given)
    assert (found.ended, found.exit_code, found.stdout, found.stderr) == ("exit", 0, "7 x,y\n", "")
    assert [(one.name, one.bytes, one.content.read()) for one in found.produced] == [("b.txt", 4, b"kept")]
    found.close()


@needs_sandbox
@pytest.mark.parametrize(
    "attempt",
    [
        "socket.create_connection(('127.0.0.1', 22), 2)",
        "socket.create_connection(('1.1.1.1', 53), 2)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW)",
        "open('/etc/shadow').read()",
        "open('/etc/passwd').read()",
        "os.listdir('/root')",
        "os.listdir('/home')",
        "open('/proc/kmsg', 'rb')",
        "open('/proc/sys/kernel/hostname', 'w').write('x')",
        "open('/sys/power/state')",
        "open('/usr/x', 'w')",
        "open('/x', 'w')",
        "open('/dev/x', 'w')",
        "os.open('/dev/sda', os.O_RDONLY)",
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "os.memfd_create('x')",
        "system(UNSHARE, 0x10000000)",
        "system(PTRACE, 16, 1, 0, 0)",
    ],
)
def test_an_attempt_to_get_out_is_an_error_in_the_code(attempt: str) -> None:
    code = f"""
import ctypes, os, socket
UNSHARE, PTRACE = (272, 101) if os.uname().machine == "x86_64" else (97, 117)
def system(*words):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "refused")
try:
    {attempt}
except OSError as error:
    print("refused:", error.errno)
else:
    print("done")
"""
    found = ran(code)
    assert found.stdout.startswith("refused:"), (found.stdout, found.stderr)


@needs_sandbox
def test_nothing_of_the_workers_environment_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", "sk-very-secret-indeed")
    found = ran(
        "import glob\n"
        "for one in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):\n"
        "    print(open(one, 'rb').read())\n"
    )
    assert found.exit_code == 0 and "PATH=/usr/bin" in found.stdout
    assert "sk-very-secret" not in found.stdout + found.stderr and "HARNESS" not in found.stdout


@needs_sandbox
def test_a_fork_bomb_comes_to_its_end_at_the_limit_and_none_of_it_is_left() -> None:
    mark = f"bomb-{os.getpid()}-{time.monotonic_ns()}"
    code = f"""
import os, sys, time
if len(sys.argv) == 1:
    n = 0
    try:
        while True:
            if os.fork() == 0:
                os.setsid()
                os.execv(sys.executable, [sys.executable, __file__, "{mark}"])
            n += 1
    except OSError as error:
        print(n, error.errno)
else:
    for handle in range(3):
        os.close(handle)
    time.sleep(1000)
"""
    found = ran(code, processes=20)
    assert found.stdout.split() == ["19", "11"] and found.exit_code == 0  # EAGAIN
    assert left(mark) == []


@needs_sandbox
def test_a_full_disk_and_a_flood_of_files_are_the_codes_own_trouble() -> None:
    full = ran("open('big', 'wb').write(bytes(1 << 20) * 9)", disk_bytes=8 << 20)
    assert full.ended == "exit" and full.exit_code != 0
    many = ran("n = 0\nwhile True:\n    open(str(n), 'w').close()\n    n += 1", files=500, wall_s=60)
    assert (many.ended, many.reason) == ("files", "it made more than 500 files")
    shm = ran("open('/dev/shm/x', 'wb').write(bytes(4 << 20))")
    assert "No space left" in shm.stderr


@needs_sandbox
def test_memory_is_limited_for_one_process_and_for_all_together() -> None:
    one = ran("x = bytearray(200 << 20)", memory_bytes=100 << 20)
    assert (one.exit_code, one.stderr.splitlines()[-1]) == (1, "MemoryError")
    together = ran(
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(40 << 20)\n"
        "        time.sleep(100)\n"
        "time.sleep(100)\n",
        memory_bytes=100 << 20,
    )
    assert (together.ended, together.reason) == ("memory", "its processes held more than 100 MiB of memory")


@needs_sandbox
def test_with_a_cgroup_the_kernel_bounds_all_processes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = next((one for one in CGROUPS if os.access(one, os.W_OK)), None)
    if parent is None or os.geteuid() != 0:
        pytest.skip("no cgroup here that may have others below it")
    monkeypatch.setenv("HARNESS_SANDBOX_CGROUP", str(parent))
    code = "import sys; sys.stdin.read(1); x = bytearray(int(sys.argv[1]) << 20); print(len(x))"
    for mib, code_wanted, wanted in ((20, 0, False), (300, -signal.SIGKILL, True)):
        with cgroup.made(sandbox.Limits(memory_bytes=100 << 20, disk_bytes=1 << 20)) as group:
            assert group is not None
            worker = subprocess.Popen([sys.executable, "-S", "-c", code, str(mib)], stdin=subprocess.PIPE)
            group.take([worker.pid])
            worker.communicate(b"x")
            assert (worker.returncode, group.ran_out()) == (code_wanted, wanted)
    found = ran("print(open('/proc/self/cgroup').read())")
    assert found.exit_code == 0
    assert list(parent.glob(f"harness-{os.getpid()}-*")) == []


def test_a_cgroup_that_isnt_to_be_used_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if LACK is not None:
        pytest.skip(LACK)
    monkeypatch.setenv("HARNESS_SANDBOX_CGROUP", str(tmp_path / "none"))
    with pytest.raises(Permanent, match=r"HARNESS_SANDBOX_CGROUP: no cgroup can be made below .*: No such file"):
        ran("print(1)")
    monkeypatch.setenv("HARNESS_SANDBOX_CGROUP", str(tmp_path))
    with pytest.raises(Permanent, match=r"HARNESS_SANDBOX_CGROUP: .* doesn't control memory"):
        ran("print(1)")
    assert list(tmp_path.iterdir()) == []


@needs_sandbox
def test_time_and_cpu_and_output_are_limited() -> None:
    slow = ran("import time\nprint('here')\ntime.sleep(1000)", wall_s=4.0)
    assert (slow.ended, slow.stdout, slow.exit_code) == ("time", "here\n", None)
    busy = ran("while True: pass", cpu_s=1, wall_s=90)
    assert (busy.ended, busy.reason) == ("cpu", "it took more than 1 s of CPU")
    loud = ran("while True: print('x' * 1000)", output_bytes=10_000)
    assert loud.ended == "output" and len(loud.stdout) == 10_000


@needs_sandbox
def test_a_person_s_wish_ends_it_with_all_its_processes() -> None:
    mark = f"wish-{os.getpid()}-{time.monotonic_ns()}"
    seen = threading.Event()

    def look() -> None:
        if len(left(mark)) >= 2:
            seen.set()
            raise Cancelled

    code = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)', '{mark}'] * 1)"
    )
    twice = f"import os\nos.fork()\n{code}"
    with pytest.raises(Cancelled):
        ran(twice, look)
    assert seen.is_set() and left(mark) == []


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "import os; os.kill(-1, 9)",
        "import os, time; os.kill(os.getppid(), 9); time.sleep(100)",
        "import os, time; os.kill(os.getppid(), 19); time.sleep(100)",
    ],
)
def test_code_that_fights_its_launcher_ends_all_the_same(code: str) -> None:
    found = ran(code, wall_s=3.0)
    assert found.ended in ("broken", "time") and found.exit_code is None and not found.produced


@needs_sandbox
def test_links_folders_and_too_many_files_are_left_out_with_the_reason() -> None:
    found = sandbox.run(
        "import os\n"
        "os.symlink('/etc/passwd', 'out/link')\n"
        "os.mkdir('out/folder')\n"
        "os.mkfifo('out/pipe')\n"
        "open('out/a\\nb', 'w').close()\n"
        "for n in range(3): open(f'out/{n}', 'w').write('x')\n",
        limits=sandbox.Limits(results=2),
    )
    assert [one.name for one in found.produced] == ["0", "1"]
    assert {name: why for name, why in found.left_out if name != "link"} == {
        "2": "more than 2 files",
        "a\nb": "its name isn't one to keep",
        "folder": "no regular file",
        "pipe": "no regular file",
    }
    assert "link" in dict(found.left_out)
    found.close()


def test_a_forged_answer_is_not_believed() -> None:
    for lie in (
        b'{"file": "../x", "bytes": 1}\n',
        b'{"file": "..", "bytes": 1}\n',
        b'{"file": "x", "bytes": -1}\n',
        b'{"file": "x", "bytes": 1e99}\n',
        b'{"file": "x", "bytes": 99999999999}\n',
        b'{"file": "x", "bytes": 0}\n{"file": "x", "bytes": 0}\n',
        b"[" * 50_000 + b"\n",
        b"x" * 70_000,
        b"{}\n",
        b"",
    ):
        answer = Answer(sandbox.Limits())
        with pytest.raises(Forged):
            answer.take(lie)
        answer.close()


def test_where_bubblewrap_is_missing_nothing_runs_and_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    mark = tmp_path / "ran"
    with pytest.raises(
        Permanent, match=r"bubblewrap isn't there: install it \(Debian, Ubuntu: apt-get install bubblewrap\)"
    ):
        sandbox.run(f"open({str(mark)!r}, 'w')")
    assert not mark.exists()


def test_where_the_kernel_forbids_it_nothing_runs_and_the_error_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # that every account can reach
        forbidden = Path(folder) / "bwrap"
        forbidden.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        forbidden.chmod(0o755)
        for mode, why in ((0o755, "can make no sandbox here (bwrap: No permissions to create"), (0o700, "be started")):
            Path(folder).chmod(mode)
            if mode == 0o755 or os.geteuid() == 0:
                assert why in (sandbox.lack() or "")
                with pytest.raises(Permanent, match="the sandbox can't be used"):
                    sandbox.run("print(1)")


@needs_sandbox
def test_no_process_inside_has_a_capability_or_is_without_the_filter() -> None:
    found = ran(
        "import glob\n"
        "for one in glob.glob('/proc/[0-9]*/status'):\n"
        "    lines = dict(line.split(':', 1) for line in open(one))\n"
        "    print(*[lines[name].strip() for name in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs', 'Seccomp')])\n"
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 3  # the first process, the launcher, and the code
    assert set(lines) == {"0" * 16 + " " + "0" * 16 + " " + "0" * 16 + " 1 2"}


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_a_worker_of_root_starts_it_as_nobody_and_a_worker_that_isnt_as_itself() -> None:
    seen: list[int] = []

    def look() -> None:
        children = [
            int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
        ]
        started = [one for one in children if Path(f"/proc/{one}/comm").read_text() == "bwrap\n"]
        for pid in (pid for one in started for pid in usage.processes(one)):
            status = Path(f"/proc/{pid}/status").read_text()
            seen.extend(int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:"))

    ran("import time; time.sleep(1)", look)
    assert set(seen) == {place.UID}
    code = "import os\nprint(os.getuid())\nn = 0\ntry:\n    while os.fork(): n += 1\nexcept OSError: print(n)"
    answer, told = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that a fork leaves behind: the child uses none of them
        child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            found = ran(code, processes=10)
            os.write(told, f"{found.ended} {found.stdout.split()}".encode())
        except BaseException:  # noqa: BLE001  # told by the other process
            os.write(told, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(answer) as file:
        assert file.read() == "exit ['1000', '9']"
    os.waitpid(child, 0)


@needs_sandbox
def test_when_the_worker_is_killed_the_sandbox_goes_with_it() -> None:
    mark = f"orphan-{os.getpid()}-{time.monotonic_ns()}"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)', '{mark}'])"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            ran(code, wall_s=1000)
        finally:
            os._exit(0)
    wait_until(lambda: len(left(mark)) > 0, within_s=60)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: left(mark) == [], within_s=30)


def test_the_interpreter_is_one_that_the_account_can_run() -> None:
    found = place.find()
    if isinstance(found, str):
        pytest.skip(found)
    assert shutil.which(found.python) and (found.python.startswith("/usr/") or found.shown)
    assert sys.platform == "linux"
