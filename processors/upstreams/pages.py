"""Parses a page of a feed into records, as the feed's mapping says."""

from hashlib import sha256
from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError, json

from daybook.domain.errors import BadValueError
from daybook.domain.jobs.job import NULL
from daybook.domain.upstreams.record import FeedRecord
from daybook.domain.values import PAYLOAD_BYTES_MAX, check_payload
from daybook.processors.upstreams.feeds import Mapping

RECORDS_MAX = 1000
# A job's payload holds the record and up to 4 KiB of metadata.
RECORD_BYTES_MAX = PAYLOAD_BYTES_MAX - 4 * 1024
ID_CHARACTERS_MAX = 200
REVISION_CHARACTERS_MAX = 200
CURSOR_CHARACTERS_MAX = 2000
NOT_JSON = "A page is not JSON."

_members = json.Decoder(dict[str, Raw])
_items = json.Decoder(list[Raw])


class BadPageError(Exception):
    """The page does not match the mapping. The text quotes nothing from the page."""


class FeedPage(Struct, frozen=True, kw_only=True):
    found: list[FeedRecord]
    cursor: str | None
    """The cursor of the next page; None if the feed gives none."""

    is_last: bool


def read_page(body: bytes, mapping: Mapping, *, requested_cursor: str | None) -> FeedPage:
    items = _decode_list(_at(Raw(body), mapping.items))
    if len(items) > RECORDS_MAX:
        raise BadPageError(f"A page has more than {RECORDS_MAX} records.")
    found = [_record(item, mapping) for item in items]
    cursor = _highest(found) if mapping.next is None else _next(body, mapping.next)
    # A short page is not the end: only an empty page is, or one that gives no new cursor.
    is_last = not found or cursor is None or cursor == requested_cursor
    return FeedPage(found=found, cursor=cursor, is_last=is_last)


def _record(item: Raw, mapping: Mapping) -> FeedRecord:
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
        # The prefix keeps it from being compared as a number.
        return f"sha256:{sha256(bytes(item)).hexdigest()}"
    return revision


def _data(item: Raw) -> Raw:
    """Returns null for content that is too large or cannot be stored."""
    # A copy, because a slice would keep the whole page in memory.
    content = Raw(bytes(item))
    if memoryview(content).nbytes > RECORD_BYTES_MAX:
        return NULL
    try:
        check_payload(content)
    except BadValueError:
        return NULL
    return content


def _next(body: bytes, path: str) -> str | None:
    cursor = _text(_at(Raw(body), path))
    if cursor is not None and (len(cursor) > CURSOR_CHARACTERS_MAX or "\0" in cursor):
        raise BadPageError(f"The cursor at {path!r} is too long or contains NUL.")
    return cursor


def _highest(found: list[FeedRecord]) -> str | None:
    ids = [one.record_id for one in found]
    if all(one.isascii() and one.isdigit() for one in ids):
        return max(ids, key=int, default=None)
    return ids[-1]


def _at(value: Raw, path: str) -> Raw | None:
    found: Raw | None = value
    for name in path.split(".") if path else ():
        if found is None:
            return None
        try:
            found = _members.decode(found).get(name)
        except ValidationError:
            return None
        except (DecodeError, UnicodeDecodeError):
            raise BadPageError(NOT_JSON) from None
    return found


def _decode_list(value: Raw | None) -> list[Raw]:
    """Raises if there is no list: an error document must not count as an empty page."""
    try:
        return _items.decode(value or NULL)
    except ValidationError:
        raise BadPageError("There is no list of records where it should be.") from None
    except (DecodeError, UnicodeDecodeError):
        raise BadPageError(NOT_JSON) from None


def _text(value: Raw | None) -> str | None:
    """Returns a string that is not empty, or the digits of a number."""
    content = _decode(value)
    if isinstance(content, str):
        return content or None
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    return bytes(value or NULL).decode() if is_number else None


def _is_set(value: Raw | None) -> bool:
    return bool(_decode(value))


def _decode(value: Raw | None) -> Any:
    try:
        return json.decode(value or NULL)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise BadPageError(NOT_JSON) from None
