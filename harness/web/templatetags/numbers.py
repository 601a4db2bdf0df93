"""Numbers as people read them."""

from django import template

register = template.Library()


@register.filter
def grouped(number: int) -> str:
    """Return a whole number with its thousands apart.

    >>> grouped(1234567)
    '1,234,567'
    """
    return f"{number:,}"
