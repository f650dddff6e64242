"""How much anybody may ask of a service: the settings that are limits.

Each is told of when it refuses something, with what to do instead; docs/limits.md lists them.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

KILOBYTE = 1024
BODY_BYTES_MAX = 256 * KILOBYTE
BATCH_BODY_BYTES_MAX = 4096 * KILOBYTE
WAIT_SECONDS_MAX = 30
PAGE_MAX = 10_000


class LimitSettings(Struct, frozen=True, kw_only=True):
    body_bytes_max: Annotated[
        int, Meta(ge=KILOBYTE, le=BODY_BYTES_MAX, description="How many bytes a body may have.")
    ] = field(default=BODY_BYTES_MAX, name="DAYBOOK_BODY_BYTES_MAX")

    batch_body_bytes_max: Annotated[
        int,
        Meta(
            ge=KILOBYTE,
            le=BATCH_BODY_BYTES_MAX,
            description="The same for requests with many orders, jobs or results; orders may have "
            "1048576 at most.",
        ),
    ] = field(default=BATCH_BODY_BYTES_MAX, name="DAYBOOK_BATCH_BODY_BYTES_MAX")

    json_depth_max: Annotated[
        int, Meta(ge=8, le=512, description="How deeply a body may be nested.")
    ] = field(default=32, name="DAYBOOK_JSON_DEPTH_MAX")

    json_items_max: Annotated[
        int,
        Meta(ge=1000, le=1_000_000, description="How many items an array of a body may have."),
    ] = field(default=1000, name="DAYBOOK_JSON_ITEMS_MAX")

    json_members_max: Annotated[
        int,
        Meta(ge=100, le=100_000, description="How many members an object of a body may have."),
    ] = field(default=200, name="DAYBOOK_JSON_MEMBERS_MAX")

    json_text_characters_max: Annotated[
        int,
        Meta(
            ge=KILOBYTE,
            le=BATCH_BODY_BYTES_MAX,
            description="How many characters a text of a body may have; for most there is a "
            "smaller limit of their own.",
        ),
    ] = field(default=128 * KILOBYTE, name="DAYBOOK_JSON_TEXT_CHARACTERS_MAX")

    url_bytes_max: Annotated[
        int, Meta(ge=256, le=64 * KILOBYTE, description="How long the address of a request may be.")
    ] = field(default=4 * KILOBYTE, name="DAYBOOK_URL_BYTES_MAX")

    headers_max: Annotated[
        int, Meta(ge=16, le=1000, description="How many headers a request may have.")
    ] = field(default=64, name="DAYBOOK_HEADERS_MAX")

    head_bytes_max: Annotated[
        int,
        Meta(
            ge=KILOBYTE,
            le=256 * KILOBYTE,
            description="How many bytes the address and the headers may have together.",
        ),
    ] = field(default=16 * KILOBYTE, name="DAYBOOK_HEAD_BYTES_MAX")

    head_seconds_max: Annotated[
        float,
        Meta(ge=0.1, le=300, description="How long a client may take for the headers."),
    ] = field(default=5.0, name="DAYBOOK_HEAD_SECONDS_MAX")

    request_seconds_max: Annotated[
        float,
        Meta(ge=0.1, le=3600, description="How long a client may take for a whole request."),
    ] = field(default=15.0, name="DAYBOOK_REQUEST_SECONDS_MAX")

    connections_max: Annotated[
        int, Meta(ge=10, le=100_000, description="How many connections there may be in all.")
    ] = field(default=5000, name="DAYBOOK_CONNECTIONS_MAX")

    connections_per_address_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="How many connections there may be from one address that is no trusted "
            "proxy's.",
        ),
    ] = field(default=100, name="DAYBOOK_CONNECTIONS_PER_ADDRESS_MAX")

    queue_depth_max: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        Meta(
            description="How many jobs may wait in one queue; it takes time to count them, so many "
            "more than workers do in a minute make little sense. Without it, any number."
        ),
    ] = field(default=None, name="DAYBOOK_QUEUE_DEPTH_MAX")

    page_max: Annotated[
        int, Meta(ge=1, le=PAGE_MAX, description="How many things one page of a list may have.")
    ] = field(default=PAGE_MAX, name="DAYBOOK_PAGE_MAX")

    wait_seconds_max: Annotated[
        float,
        Meta(ge=0, le=WAIT_SECONDS_MAX, description="How long a worker may wait for jobs."),
    ] = field(default=WAIT_SECONDS_MAX, name="DAYBOOK_WAIT_SECONDS_MAX")


STANDARD_LIMITS = LimitSettings()
