"""A page of a feed: from the bytes that came to the records on it."""

from hashlib import sha256
from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError, json

from daybook.domain.errors import BadValueError
from daybook.domain.jobs.job import NULL
from daybook.domain.upstreams.record import FeedRecord
from daybook.domain.values import PAYLOAD_BYTES_MAX, check_payload
from daybook.processors.upstreams.feeds import Mapping

RECORDS_MAX = 1000
# A job's payload holds the record and up to 4 KiB about it.
RECORD_BYTES_MAX = PAYLOAD_BYTES_MAX - 4 * 1024
ID_CHARACTERS_MAX = 200
REVISION_CHARACTERS_MAX = 200
CURSOR_CHARACTERS_MAX = 2000
NOT_JSON = "A page is not JSON."

_members = json.Decoder(dict[str, Raw])
_items = json.Decoder(list[Raw])


class BadPageError(Exception):
    """What came is not what the mapping says. The sentence shows nothing of what came."""


class FeedPage(Struct, frozen=True, kw_only=True):
    found: list[FeedRecord]
    cursor: str | None
    """Where the next page begins; None when the feed does not say."""

    is_last: bool


def read_page(body: bytes, mapping: Mapping, *, asked: str | None) -> FeedPage:
    """`asked` is the cursor that this page was asked for with."""
    items = _listed(_at(Raw(body), mapping.items))
    if len(items) > RECORDS_MAX:
        raise BadPageError(f"A page has more than {RECORDS_MAX} records.")
    found = [_found(item, mapping) for item in items]
    cursor = _highest(found) if mapping.next is None else _next(body, mapping.next)
    # A feed may hand out short pages, so only an empty one is the last; or one after which nothing
    # else can be asked for.
    return FeedPage(
        found=found, cursor=cursor, is_last=not found or cursor is None or cursor == asked
    )


def _found(item: Raw, mapping: Mapping) -> FeedRecord:
    record_id = _text(_at(item, mapping.id))
    if record_id is None or len(record_id) > ID_CHARACTERS_MAX or "\0" in record_id:
        raise BadPageError(f"A record has no usable id at {mapping.id!r}.")
    return FeedRecord(
        record_id=record_id,
        revision=_revision(item, mapping),
        deleted=mapping.deleted is not None and _is_set(_at(item, mapping.deleted)),
        data=_data(item),
    )


def _revision(item: Raw, mapping: Mapping) -> str:
    revision = None if mapping.version is None else _text(_at(item, mapping.version))
    if revision is None or len(revision) > REVISION_CHARACTERS_MAX or "\0" in revision:
        # Named for what it is, lest it be taken for a number.
        return f"sha256:{sha256(bytes(item)).hexdigest()}"
    return revision


def _data(item: Raw) -> Raw:
    """What is too large, or cannot be stored, is left out: who needs it asks the upstream."""
    # A copy: the item is a part of its page, which would be kept with it.
    content = Raw(bytes(item))
    if memoryview(content).nbytes > RECORD_BYTES_MAX:
        return NULL
    try:
        check_payload(content)
    except BadValueError:
        return NULL
    return content


def _next(body: bytes, place: str) -> str | None:
    cursor = _text(_at(Raw(body), place))
    if cursor is not None and (len(cursor) > CURSOR_CHARACTERS_MAX or "\0" in cursor):
        raise BadPageError(f"The cursor at {place!r} is too long.")
    return cursor


def _highest(found: list[FeedRecord]) -> str | None:
    ids = [one.record_id for one in found]
    if all(one.isascii() and one.isdigit() for one in ids):
        return max(ids, key=int, default=None)
    return ids[-1]


def _at(value: Raw, place: str) -> Raw | None:
    """What stands at a place; None when nothing does."""
    found: Raw | None = value
    for name in place.split(".") if place else ():
        if found is None:
            return None
        try:
            found = _members.decode(found).get(name)
        except ValidationError:
            return None
        except (DecodeError, UnicodeDecodeError):
            raise BadPageError(NOT_JSON) from None
    return found


def _listed(value: Raw | None) -> list[Raw]:
    """An answer that has no list is no empty page: it may be somebody's excuse."""
    try:
        return _items.decode(value or NULL)
    except ValidationError:
        raise BadPageError("There is no list of records where it should be.") from None
    except (DecodeError, UnicodeDecodeError):
        raise BadPageError(NOT_JSON) from None


def _text(value: Raw | None) -> str | None:
    """Of a text that is not empty, or a number as it is written."""
    content = _decoded(value)
    if isinstance(content, str):
        return content or None
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    return bytes(value or NULL).decode() if is_number else None


def _is_set(value: Raw | None) -> bool:
    return bool(_decoded(value))


def _decoded(value: Raw | None) -> Any:
    try:
        return json.decode(value or NULL)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise BadPageError(NOT_JSON) from None
