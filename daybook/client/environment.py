"""The client's only look at the environment: the address of the service and the key for it.

The key goes to the address of the environment only. A program that names another address names its
key too, so that no service is shown a key that was meant for another.
"""

import os

from daybook.errors import BadAddress


def address_and_key(url: str | None, key: str | None) -> tuple[str, str | None]:
    """The given ones or, where no address is given, DAYBOOK_URL and DAYBOOK_KEY."""
    if url is not None:
        return url, key
    url = os.environ.get("DAYBOOK_URL") or None
    if url is None:
        raise BadAddress(
            "There is no address of the service: give one, such as http://127.0.0.1:8000, or set "
            "DAYBOOK_URL."
        )
    return url, key or os.environ.get("DAYBOOK_KEY") or None
