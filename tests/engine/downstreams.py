"""What a leader reads of resources, from a real Redis; and calls that fail until a breaker opens."""

from collections.abc import Mapping
from dataclasses import replace

from django.conf import settings

from harness.engine.readings import Readings
from harness.policy.calls import Assumed, Reading
from harness.policy.outlook import Outlook
from harness.policy.permits import Ask, Granted, Report, Want
from harness.policy.resources import Resource
from harness.store.permits import Permits
from tests.stage import Stage

LLM = "llm:default"
STREAK = 5  # failures in a row that open a breaker


class Downstreams:
    """See the module. `look` gives the leader of a stage what is so now."""

    def __init__(self, stage: Stage, url: str, configured: Mapping[str, Resource] | None = None) -> None:
        self.stage = stage
        self.readings = Readings(configured=configured or settings.HARNESS_TOPOLOGY.resources)
        self.permits = Permits(url, self.readings.effective)
        self.readings.permits = self.permits
        self.look()

    def look(self) -> Outlook:
        """Read all, as if a second had passed."""
        self.readings._rows_s = None
        outlook = self.readings.look(self.stage.connection)
        self.stage.memory.see(outlook)
        return outlook

    def later(self, seconds: float) -> None:
        """As if the last reading were so old: breakers and blocks end by the clock alone."""
        outlook = self.stage.memory.outlook
        assert outlook is not None
        self.stage.memory.see(replace(outlook, taken_s=outlook.taken_s - seconds))

    def says(self, resource: str, **fields: object) -> Reading:
        """As if permits said this of a resource."""
        outlook = self.look()
        one = outlook.readings[resource]
        values = {name: getattr(one, name) for name in Assumed.__dataclass_fields__}
        said = Assumed(**values | fields)
        self.stage.memory.see(replace(outlook, readings={**outlook.readings, resource: said}))
        return said

    def call(self, task: int, resource: str = LLM) -> Granted:
        """Begin a call of a task."""
        answer = self.permits.acquire(
            Ask(
                member=f"{task}:1:1",
                tenant=self.stage.tenant,
                priority=2,
                calls_done=0,
                since_s=0.0,
                wants=(Want(resource),),
                waits=False,
            )
        )
        assert isinstance(answer, Granted), answer
        return answer

    def fail(self, resource: str = LLM) -> None:
        """Fail until the breaker opens, and read that."""
        for number in range(STREAK):
            self.permits.finish(self.call(10_000_000 + number, resource), Report(outcome="ignore", failure=True))
        assert self.look().readings[resource].breaker == "open"
