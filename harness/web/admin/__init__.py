"""The admin: people look at the work, and act on it by the verbs that the lifecycle table allows.

State is never edited. A person who is tied to a tenant sees that tenant's rows alone: by each list's queryset, and by
row-level security below it.
"""
