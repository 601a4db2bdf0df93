"""What connections for hot statements save: the parse of each, once a process."""

import re
from importlib.resources import files

from psycopg import _queries
from psycopg.adapt import Transformer

from harness.store import database, sql


def test_the_parse_of_our_longest_statement_is_kept() -> None:
    assert database.STATEMENT_TIMEOUT_S  # the module sets how long a kept statement may be
    names = [
        f"{folder.name}/{file.name.removesuffix('.sql')}"
        for folder in files(sql.__name__).iterdir()
        if folder.is_dir() and not folder.name.startswith(("_", "schema"))
        for file in folder.iterdir()
    ]
    longest = max((sql.load(name) for name in names), key=len)
    assert len(longest) > 4096, "psycopg's own limit would do by now"
    parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", longest))
    query = _queries.PostgresQuery(Transformer())
    query.convert(longest, parameters)
    kept = _queries._query2pg.cache_info().hits
    query.convert(longest, parameters)
    assert _queries._query2pg.cache_info().hits == kept + 1
