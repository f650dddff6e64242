"""Settings that limit requests, connections and queues; docs/limits.md describes them."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

KILOBYTE = 1024
BODY_BYTES_MAX = 256 * KILOBYTE
BATCH_BODY_BYTES_MAX = 4096 * KILOBYTE
WAIT_SECONDS_MAX = 30
PAGE_MAX = 10_000


def about(description: str, **constraints: Any) -> Meta:
    return Meta(description=description, **constraints)


class LimitSettings(Struct, frozen=True, kw_only=True):
    body_bytes_max: Annotated[
        int, about("Maximum size of a body, in bytes.", ge=KILOBYTE, le=BODY_BYTES_MAX)
    ] = field(default=BODY_BYTES_MAX, name="DAYBOOK_BODY_BYTES_MAX")

    batch_body_bytes_max: Annotated[
        int,
        about(
            "The same for requests with many orders, jobs or results; for orders 1048576 at most.",
            ge=KILOBYTE,
            le=BATCH_BODY_BYTES_MAX,
        ),
    ] = field(default=BATCH_BODY_BYTES_MAX, name="DAYBOOK_BATCH_BODY_BYTES_MAX")

    json_depth_max: Annotated[int, about("Maximum nesting depth of a body.", ge=8, le=512)] = field(
        default=32, name="DAYBOOK_JSON_DEPTH_MAX"
    )

    json_items_max: Annotated[
        int, about("Maximum number of items of an array in a body.", ge=1000, le=1_000_000)
    ] = field(default=1000, name="DAYBOOK_JSON_ITEMS_MAX")

    json_members_max: Annotated[
        int, about("Maximum number of members of an object in a body.", ge=100, le=100_000)
    ] = field(default=200, name="DAYBOOK_JSON_MEMBERS_MAX")

    json_text_characters_max: Annotated[
        int,
        about(
            "Maximum length of a string in a body, in characters; most fields have a smaller "
            "limit of their own.",
            ge=KILOBYTE,
            le=BATCH_BODY_BYTES_MAX,
        ),
    ] = field(default=128 * KILOBYTE, name="DAYBOOK_JSON_TEXT_CHARACTERS_MAX")

    url_bytes_max: Annotated[
        int, about("Maximum length of a URL, in bytes.", ge=256, le=64 * KILOBYTE)
    ] = field(default=4 * KILOBYTE, name="DAYBOOK_URL_BYTES_MAX")

    headers_max: Annotated[
        int, about("Maximum number of headers of a request.", ge=16, le=1000)
    ] = field(default=64, name="DAYBOOK_HEADERS_MAX")

    head_bytes_max: Annotated[
        int,
        about(
            "Maximum size of the URL and the headers together, in bytes.",
            ge=KILOBYTE,
            le=256 * KILOBYTE,
        ),
    ] = field(default=16 * KILOBYTE, name="DAYBOOK_HEAD_BYTES_MAX")

    head_seconds_max: Annotated[
        float, about("Time limit for sending the headers, in seconds.", ge=0.1, le=300)
    ] = field(default=5.0, name="DAYBOOK_HEAD_SECONDS_MAX")

    request_seconds_max: Annotated[
        float, about("Time limit for sending a whole request, in seconds.", ge=0.1, le=3600)
    ] = field(default=15.0, name="DAYBOOK_REQUEST_SECONDS_MAX")

    connections_max: Annotated[
        int, about("Maximum number of open connections.", ge=10, le=100_000)
    ] = field(default=5000, name="DAYBOOK_CONNECTIONS_MAX")

    connections_per_address_max: Annotated[
        int,
        about(
            "Maximum number of open connections from one address; trusted proxies are exempt.",
            ge=1,
            le=100_000,
        ),
    ] = field(default=100, name="DAYBOOK_CONNECTIONS_PER_ADDRESS_MAX")

    queue_depth_max: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        about(
            "Maximum number of waiting jobs in one queue. Counting takes time, so choose no "
            "more than workers finish in about a minute. Unlimited if not set."
        ),
    ] = field(default=None, name="DAYBOOK_QUEUE_DEPTH_MAX")

    page_max: Annotated[
        int, about("Maximum number of items of one page of a list.", ge=1, le=PAGE_MAX)
    ] = field(default=PAGE_MAX, name="DAYBOOK_PAGE_MAX")

    wait_seconds_max: Annotated[
        float,
        about(
            "Maximum time for which a worker may wait for jobs, in seconds.",
            ge=0,
            le=WAIT_SECONDS_MAX,
        ),
    ] = field(default=WAIT_SECONDS_MAX, name="DAYBOOK_WAIT_SECONDS_MAX")


STANDARD_LIMITS = LimitSettings()
