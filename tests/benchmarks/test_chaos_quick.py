"""Two minutes of chaos on servers of its own: nothing lost, nothing done twice, no cap exceeded, nothing leaked."""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.chaos.checker import COLUMNS

# tell_expired waits for a claim that comes too late; the others are few, and an order may come after the last of them.
SELDOM = ("tell_expired", "step_", "spawn", "park", "unpark", "ask", "answer", "deny", "emit")
ROOT = Path(__file__).resolve().parents[2]


def test_two_minutes_of_faults_leaves_every_fault_column_at_zero(tmp_path: Path) -> None:
    path = tmp_path / "chaos.json"
    own = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "chaos", "--quick", "--json", str(path)],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(path.read_text()) if path.exists() else {}
    assert done.returncode == 0, (
        json.dumps(report.get("findings"), indent=1) + done.stdout[-4000:] + done.stderr[-4000:]
    )
    assert {column: report[column] for column in COLUMNS} == dict.fromkeys(COLUMNS, 0)
    assert (report["audit_findings"], report["audit_faults"]) == (0, [])
    assert report["kills_total"] >= 5 and report["servers"] and report["messages"]
    ordered = {order for order in report["orders"] if not order.startswith(SELDOM)}
    assert set(report["sabotage"]) >= ordered, "whoever comes to the statement next obeys"
    assert len(report["orders"]) >= 3 and report["sabotage"]
    assert report["paused"] >= 2
    assert report["provider"]["in_flight_max"] > 0
    assert report["children"] and report["parked"] and report["approvals"] and report["waiting_max"]
    assert report["streams"] and report["stream_events"] > 3 * report["streams"]
    assert report["tasks"] > 50 and report["effects"] > 30 and report["states"]["succeeded"] > 30


def test_it_refuses_servers_of_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "chaos", "--quick"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "unset DATABASE_URL and BROKER_URL" in done.stderr
