"""The decision at the door."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.admission import Admit, Reject, TenantFacts, decide, default_priority

tenants = st.builds(
    TenantFacts,
    id=st.just(1),
    name=st.just("a"),
    top_priority=st.integers(0, 3),
    backlog_quota=st.integers(0, 1000),
)


@given(tenants, st.integers(0, 3), st.integers(1, 1500), st.integers(0, 1500))
def test_what_is_admitted_fits_and_what_is_refused_does_not(
    tenant: TenantFacts, priority: int, count: int, backlog: int
) -> None:
    decision = decide(tenant, most_urgent=priority, count=count, backlog=backlog)
    fits = priority >= tenant.top_priority and backlog + count <= tenant.backlog_quota
    assert isinstance(decision, Admit) is fits


@given(tenants, st.integers(1, 1500), st.integers(0, 1500))
def test_waiting_is_advised_only_when_it_can_help(tenant: TenantFacts, count: int, backlog: int) -> None:
    decision = decide(tenant, most_urgent=3, count=count, backlog=backlog)
    if isinstance(decision, Reject):
        assert (decision.retry_after_s is not None) is (count <= tenant.backlog_quota)


@given(tenants)
def test_the_default_priority_is_always_allowed(tenant: TenantFacts) -> None:
    assert decide(tenant, most_urgent=default_priority(tenant), count=0, backlog=0) == Admit()
