"""What a person's browser takes from a page of the admin."""


def token_of(page: str) -> str:
    """The one-time token of the form on a page."""
    return page.split('name="_once" value="')[1].split('"', maxsplit=1)[0]
