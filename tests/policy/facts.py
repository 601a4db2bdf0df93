"""Any state that a planner may find."""

from dataclasses import replace

from hypothesis import strategies as st

from harness.policy.dispatch import Facts, FlowFacts, Head

KINDS = {"short": 0.002, "middle": 0.03, "long": 5.0}
BUNDLING = frozenset({"short", "middle"})


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    slots = draw(st.sampled_from([1, 2, 4, 10, 50]))
    flows = []
    task = 0
    for flow_id in range(draw(st.integers(0, 12))):
        heads = []
        for _ in range(draw(st.integers(0, 8))):
            task += 1
            heads.append(
                Head(
                    task=task,
                    kind=draw(st.sampled_from(sorted(KINDS))),
                    single=draw(st.booleans()),
                    lost_starts=draw(st.sampled_from([0, 0, 0, 1, 2])),
                )
            )
        needs = draw(st.sampled_from([(), (("llm", 1),), (("browser", 1), ("llm", 2))]))
        flows.append(
            FlowFacts(
                id=flow_id + 1,
                priority=draw(st.integers(0, 3)),
                tenant=draw(st.integers(1, 4)),
                run=draw(st.sampled_from([0, 0, 11, 12])),
                signature=",".join(f"{name}={n}" for name, n in needs),
                rank=draw(st.floats(0, 100)),
                tenant_cap=draw(st.integers(0, 20)),
                run_cap=draw(st.sampled_from([None, 0, 1, 5])),
                heads=tuple(heads),
                needs=needs,
            )
        )
    caps = {flow.tenant: flow.tenant_cap for flow in flows}
    runs = {flow.run: flow.run_cap for flow in flows}
    flows = [replace(flow, tenant_cap=caps[flow.tenant], run_cap=runs[flow.run]) for flow in flows]
    return Facts(
        pool="db",
        free=draw(st.integers(0, slots)),
        quarantine_free=draw(st.integers(0, 2)),
        flows=tuple(flows),
        tenant_in_flight=draw(st.dictionaries(st.integers(1, 4), st.integers(0, 10))),
        run_in_flight=draw(st.dictionaries(st.sampled_from([11, 12]), st.integers(0, 5))),
        resource_room={"llm": draw(st.integers(0, 6)), "browser": draw(st.integers(0, 2))},
        quota_room=draw(
            st.dictionaries(
                st.sampled_from([(1, "pool", "db"), (2, "resource", "llm"), (3, "resource", "browser")]),
                st.integers(0, 5),
            )
        ),
        estimates=KINDS,
        bundling=BUNDLING,
    )
