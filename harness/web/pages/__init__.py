"""Pages for people: a task, a run, a tenant's start page, operations. Server-rendered, live, whole without JavaScript.

What all of them share stands in access (who looks), shell (how a page is answered), live (how it stays up to date),
forms (buttons that act once), words and marks (how things are said and drawn).
"""
