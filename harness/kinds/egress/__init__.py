"""HTTP for kinds, guarded: what a tenant names can't lead to a private network, a metadata service or a full disk.

`fetch` reads an answer under caps, over redirects; `post` delivers a body once and reads only the answer's head.
`check` judges an address before it is used; `open_proxy` judges what a program of its own, such as a browser, asks for.
`fetch` and `post` never try again, keep a cookie, know a proxy of the environment, or name more of an address than
its host.
"""

from harness.kinds.egress.client import Fetched, Posted, check, fetch, post
from harness.kinds.egress.outcomes import error_of_status
from harness.kinds.egress.proxy import Proxy, open_proxy
from harness.kinds.egress.resolver import Resolver, system_resolver
from harness.kinds.egress.rules import Rules

__all__ = [
    "Fetched",
    "Posted",
    "Proxy",
    "Resolver",
    "Rules",
    "check",
    "error_of_status",
    "fetch",
    "open_proxy",
    "post",
    "system_resolver",
]
