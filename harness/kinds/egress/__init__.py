"""HTTP for kinds, guarded: what a tenant names can't lead to a private network, a metadata service or a full disk.

`fetch` reads an answer under caps, over redirects; `post` delivers a body once and reads only the answer's head.
Neither tries again, keeps a cookie, knows a proxy of the environment, or names more of an address than its host.
"""

from harness.kinds.egress.client import Fetched, Posted, fetch, post
from harness.kinds.egress.outcomes import error_of_status
from harness.kinds.egress.resolver import Resolver, system_resolver
from harness.kinds.egress.rules import Rules

__all__ = ["Fetched", "Posted", "Resolver", "Rules", "error_of_status", "fetch", "post", "system_resolver"]
