"""Orders at statements inside a transaction, and at output: what was cut after its commit is there, before it isn't."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.chaos import sabotage

ROOT = Path(__file__).resolve().parents[2]
CUT = "the connection was cut by an order: "
PROGRAM = """
import os, psycopg, sys
from benchmarks.chaos import sabotage
from harness.policy.errors import Unavailable
from harness.store import sql
from harness.store.live import Chunk, LiveWriter

sabotage.install(sys.argv[1])
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    connection.execute("CREATE TABLE marks (n integer)")
    try:
        with connection.transaction():
            connection.execute("INSERT INTO marks VALUES (1)")
            connection.execute(sql.load("children/link"), {"task": 0, "release_no": 0})
            connection.execute("INSERT INTO marks VALUES (2)")
    except psycopg.OperationalError as error:
        print(error)
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    print(connection.execute("SELECT count(*) FROM marks").fetchone()[0])
    connection.execute("DROP TABLE marks")
try:
    LiveWriter(sys.argv[2]).send([Chunk("cut", 1, 1, 0, "x")])
    print("sent")
except Unavailable as error:
    print(error.__cause__)
"""


def test_a_transaction_is_cut_after_its_commit_and_output_before_or_after_it_is_sent(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), broker_url],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "DATABASE_URL": database_url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert run() == ["2", "sent"]
    for name in ("spawn.before.cut", "emit.before.cut"):
        sabotage.order(tmp_path, name)
    assert run() == [CUT + "spawn.before", "0", CUT + "emit.before"]
    for name in ("spawn.after.cut", "emit.after.cut"):
        sabotage.order(tmp_path, name)
    assert run() == [CUT + "spawn.after", "2", CUT + "emit.after"]
