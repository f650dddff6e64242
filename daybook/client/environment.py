"""Reads DAYBOOK_URL and DAYBOOK_KEY, the only environment variables of the client.

DAYBOOK_KEY is sent to DAYBOOK_URL only: a program that gives its own address must give its own
key, so that no service receives the key of another.
"""

import os

from daybook.errors import BadAddress


def address_and_key(url: str | None, key: str | None) -> tuple[str, str | None]:
    """Returns the arguments or, if `url` is None, DAYBOOK_URL and DAYBOOK_KEY."""
    if url is not None:
        return url, key
    url = os.environ.get("DAYBOOK_URL") or None
    if url is None:
        raise BadAddress(
            "The address of the service is missing: pass url, such as http://127.0.0.1:8000, or "
            "set DAYBOOK_URL."
        )
    return url, key or os.environ.get("DAYBOOK_KEY") or None
