"""Configuration of polled feeds, from a TOML or JSON file or from JSON text.

It is not stored in the log: headers hold secrets, and the log never deletes anything.
"""

from pathlib import Path
from typing import Annotated

from msgspec import DecodeError, Meta, Struct, ValidationError, convert, json, toml

from daybook.domain.patterns import whole
from daybook.domain.upstreams.commands import RecordJob
from daybook.domain.upstreams.upstream import Overlap
from daybook.domain.values import Name
from daybook.eventlog.errors import SetupError

DAY_SECONDS = 86_400
FILE_BYTES_MAX = 1024 * 1024

# Nested members, such as data.items; empty for the whole document.
MemberPath = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Url = Annotated[str, Meta(pattern=whole(r"https?://[^\s/?#]+[^\s#]*"), max_length=2000)]


class Mapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of members in a page."""

    items: MemberPath = ""
    next: MemberPath | None = None
    """The cursor of the next page. By default the id of the last record, or the highest id if all
    are whole numbers."""

    id: MemberPath = "id"
    version: MemberPath | None = None
    """By default a digest of the whole record."""

    deleted: MemberPath | None = None
    """A record is deleted if this member is neither false, null, 0 nor empty."""


class Feed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Url
    headers: dict[Text, Annotated[str, Meta(max_length=8000)]] = {}
    every_seconds: Annotated[float, Meta(ge=1, le=30 * DAY_SECONDS)] = 300.0
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100
    after_parameter: Text = "after"
    page_size_parameter: Text = "page_size"
    mapping: Mapping = Mapping()
    overlap_records: Annotated[int, Meta(ge=0, le=100_000)] = 100
    overlap_seconds: Annotated[float, Meta(ge=0, le=30 * DAY_SECONDS)] = 600.0
    reconcile_seconds: Annotated[float, Meta(ge=0, le=365 * DAY_SECONDS)] = DAY_SECONDS
    """0 for never: then only records that the feed marks as deleted are deleted."""

    vanished_share_max: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """A poll in which a larger share of the records is missing is rejected."""

    job: RecordJob | None = None

    @property
    def overlap(self) -> Overlap:
        return Overlap(self.overlap_records, self.overlap_seconds)

    def __repr__(self) -> str:
        """Omits the URL and headers, which may hold secrets."""
        return f"Feed(every_seconds={self.every_seconds})"


Feeds = dict[Name, Feed]


def read_feeds(setting: str | None) -> Feeds:
    """Reads the path of a TOML or JSON file, or JSON itself. Raises SetupError."""
    if not setting:
        return {}
    if setting.lstrip().startswith("{"):
        return _decode(setting.encode(), is_json=True)
    path = Path(setting).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SetupError(f"DAYBOOK_UPSTREAMS cannot be read: {error.strerror}.") from None
    if len(content) > FILE_BYTES_MAX:
        raise SetupError(f"The file of DAYBOOK_UPSTREAMS is larger than {FILE_BYTES_MAX} bytes.")
    return _decode(content, is_json=path.suffix == ".json")


def _decode(content: bytes, *, is_json: bool) -> Feeds:
    try:
        return convert(json.decode(content) if is_json else toml.decode(content), Feeds)
    except ValidationError as error:
        raise SetupError(f"DAYBOOK_UPSTREAMS is invalid: {error}.") from None
    except (DecodeError, UnicodeDecodeError):
        # The original error might quote a secret.
        kind = "JSON" if is_json else "TOML"
        raise SetupError(f"DAYBOOK_UPSTREAMS is not {kind}.") from None
