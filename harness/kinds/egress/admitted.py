"""Which addresses of a target may be connected to: a name is resolved once, and everything it resolves to is judged."""

from harness.kinds.egress import rules
from harness.kinds.egress.addresses import Address
from harness.kinds.egress.deadline import Deadline
from harness.kinds.egress.outcomes import forbidden
from harness.kinds.egress.resolver import Resolver, resolve
from harness.kinds.egress.rules import Rules
from harness.kinds.egress.target import Target


def admitted(where: Target, allowed: Rules, resolver: Resolver, deadline: Deadline) -> list[Address]:
    """Resolve once and return the addresses: the connection goes to one of these, whatever the name becomes later.

    One refused address refuses the name: whoever mixes them in has nothing good in mind.
    Raises: Permanent (permission), TimedOut, Transient (network).
    """
    if where.address is not None:
        addresses: list[Address] = [where.address]
    else:
        addresses = resolve(resolver, where.host, where.port, deadline)
    for address in addresses:
        refusal = allowed.refusal(where.host, where.port, address)
        if refusal is not None:
            raise forbidden(
                f"url: {where.named} leads to {refusal}, which is not allowed: name another, or add it "
                f"to {rules.PORTS if refusal.startswith('port') else rules.ALLOW} where the worker runs"
            )
    return addresses
