"""The operations page: how the whole stands, what drives it, and what an operator can do about it.

    seen (one look a process, for all who watch)  ->  banner, signs, charts, rows, changes (what is said and drawn)
    ->  page (the views)        verbs (pause, resume, override, drain: a page each, with a reason)

Nothing here decides or counts tasks: levels, advice and limits are read where they are kept.
"""
