"""A provider that refuses everything, on the real stages: tasks are released at the pace of the calls that try it."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from pydantic import BaseModel

from harness.engine import execute
from harness.engine.process import ProcessState
from harness.kinds import Calling, Context, RateLimited, kind
from harness.policy.resources import Live, Resource
from tests.engine.downstreams import LLM, Downstreams
from tests.engine.line import opened
from tests.stage import Stage

SLOTS = 40
TICK_S, LOOK_S = 0.02, 0.25  # about as the leader ticks while it releases, and as it reads


class Nothing(BaseModel):
    """No input."""


class Provider:
    """Refuses while `refuses` is set; else it answers at once."""

    def __init__(self) -> None:
        self.refuses = threading.Event()
        self.seen: Counter[str] = Counter()

    def answer(self, call: Calling) -> None:
        if self.refuses.is_set():
            self.seen["refused"] += 1
            raise RateLimited("too many at once")
        self.seen["answered"] += 1


PROVIDER = Provider()


@kind("test.asks_one_who_refuses", pool="llm", input=Nothing, resources={LLM: 1}, timeout_s=60)
def asks(ctx: Context, payload: Nothing) -> None:
    ctx.call(LLM, PROVIDER.answer)


def lead(
    downstreams: Downstreams, process: ProcessState, slots: ThreadPoolExecutor, until: Callable[[], bool]
) -> tuple[int, float]:
    """Tick and look as a leader does, and run what it releases; returns how many that were, and in how many seconds."""
    stage, released, began_s = downstreams.stage, 0, time.monotonic()
    looked_s = 0.0
    while not until():
        if time.monotonic() - looked_s >= LOOK_S:
            looked_s = time.monotonic()
            downstreams.look()
        for message in list(stage.tick()):
            released += 1
            slots.submit(execute.run_lease, process, message.lease, message.token)
        time.sleep(TICK_S)
    return released, time.monotonic() - began_s


def test_who_is_next_waits_in_its_slot_for_five_seconds_however_long_a_call_takes(
    stage: Stage, broker_url: str
) -> None:
    with opened(stage, broker_url) as line:
        line.set(LLM, capacity=1)
        line.process.downstream._call_s[LLM] = 60.0
        line.take(LLM, 1)
        began_s = time.monotonic()
        task = line.run("test.asks_one_who_refuses")
        assert 5.0 <= time.monotonic() - began_s < 8.0
        assert line.stage.row(task)["postponements"] == 1 and 59 < line.due_in_s(task) < 63
        assert line.reading().waiting == 0 and line.reading().asked == 1, "only who holds the permit has asked"


def test_while_a_provider_refuses_all_hardly_anything_is_released_and_soon_all_when_it_is_back(
    stage: Stage, broker_url: str
) -> None:
    global PROVIDER
    PROVIDER = Provider()
    configured = {
        **settings.HARNESS_TOPOLOGY.resources,
        LLM: Resource(name=LLM, held="call", capacity=30, limiter="csl", start=10),
    }
    downstreams = Downstreams(stage, broker_url, configured)
    session = stage.add_session({"llm": SLOTS})
    stage.submit("test.asks_one_who_refuses", n=400)
    with stage.process(session, connections=4) as process, ThreadPoolExecutor(SLOTS) as slots:
        process.downstream.live = {name: Live(resource=one) for name, one in configured.items()}
        process.downstream._call_s[LLM] = 6.0  # calls there are long: a turn is no wait for a slot
        PROVIDER.refuses.set()

        def after(seconds: float) -> Callable[[], bool]:
            end_s = time.monotonic() + seconds
            return lambda: time.monotonic() >= end_s

        lead(downstreams, process, slots, after(2.5))
        refused = PROVIDER.seen["refused"]
        released, passed_s = lead(downstreams, process, slots, after(4.0))
        assert released <= passed_s, "one a second at most"
        assert PROVIDER.seen["refused"] - refused <= 2
        PROVIDER.refuses.clear()
        late = after(20.0)
        lead(downstreams, process, slots, lambda: PROVIDER.seen["answered"] >= 50 or late())
        assert PROVIDER.seen["answered"] >= 50
    downstreams.permits.close()
