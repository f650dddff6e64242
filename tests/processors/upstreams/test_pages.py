"""Pages of feeds, and the settings of feeds."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.domain.jobs.create import DirectJobRequest
from daybook.domain.jobs.job import NULL
from daybook.domain.upstreams.commands import RecordJob
from daybook.domain.upstreams.record import UpstreamRecord
from daybook.domain.values import NAME_CHARACTERS_MAX, checked
from daybook.eventlog.errors import SetupError
from daybook.processors.upstreams.feeds import Feed, Mapping, read_feeds
from daybook.processors.upstreams.pages import (
    ID_CHARACTERS_MAX,
    RECORD_BYTES_MAX,
    REVISION_CHARACTERS_MAX,
    BadPageError,
    FeedPage,
    _data,
    read_page,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def page(body: Any, asked: str | None = None, **mapping: Any) -> FeedPage:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_page(content, Mapping(**mapping), requested_cursor=asked)


def test_a_page_may_be_a_list() -> None:
    read = page([{"id": 1}, {"id": "b"}])
    assert [one.record_id for one in read.found] == ["1", "b"]
    assert (read.cursor, read.is_last) == ("b", False)


def test_things_may_stand_inside_each_other() -> None:
    item = {"key": {"id": 7}, "meta": {"version": 3, "deleted": True}}
    read = page(
        {"result": {"items": [item], "paging": {"next": "abc"}}},
        items="result.items",
        next="result.paging.next",
        id="key.id",
        version="meta.version",
        deleted="meta.deleted",
    )
    (found,) = read.found
    assert (found.record_id, found.revision, found.deleted) == ("7", "3", True)
    assert json.loads(bytes(found.data)) == item
    assert (read.cursor, read.is_last) == ("abc", False)


@pytest.mark.parametrize(
    ("ids", "cursor"), [([3, 10, 9], "10"), (["3", "10", "9"], "10"), (["b", "a"], "a"), ([], None)]
)
def test_without_another_the_cursor_is_the_highest_id_or_the_last(
    ids: list[Any], cursor: str | None
) -> None:
    # S1-13
    assert page([{"id": one} for one in ids]).cursor == cursor


@pytest.mark.parametrize(
    ("body", "asked", "is_last"),
    [
        ({"items": [], "next": "x"}, None, True),
        ({"items": [{"id": 1}], "next": None}, None, True),
        ({"items": [{"id": 1}]}, None, True),
        ({"items": [{"id": 1}], "next": ""}, None, True),
        ({"items": [{"id": 1}], "next": "x"}, "x", True),
        ({"items": [{"id": 1}], "next": "x"}, "w", False),
        ({"items": [{"id": 1}], "next": 12}, "11", False),
    ],
)
def test_the_last_page_is_the_one_after_which_there_is_nothing_to_ask(
    body: Any, asked: str | None, is_last: bool
) -> None:
    assert page(body, asked, items="items", next="next").is_last == is_last


def test_a_record_without_a_version_has_changed_when_anything_in_it_has() -> None:
    def revision(item: Any) -> str:
        return page([item]).found[0].revision

    assert revision({"id": 1, "a": 1}) == revision({"id": 1, "a": 1})
    assert revision({"id": 1, "a": 1}) != revision({"id": 1, "a": 2})
    assert revision({"id": 1}).startswith("sha256:"), "it must not be taken for a number"


@pytest.mark.parametrize(
    ("deleted", "is_deleted"),
    [
        (True, True),
        ("2026-01-01", True),
        (1, True),
        (None, False),
        (False, False),
        ("", False),
        (0, False),
    ],
)
def test_a_record_is_deleted_if_its_marker_is_truthy(deleted: Any, is_deleted: bool) -> None:
    (found,) = page([{"id": 1, "gone": deleted}], deleted="gone").found
    assert found.deleted == is_deleted


@pytest.mark.parametrize(
    "item",
    [
        b'{"id": 1, "text": "' + b"x" * RECORD_BYTES_MAX + b'"}',
        rb'{"id": 1, "text": "\u0000"}',
        b'{"id": 1, "text": "\xff"}',
    ],
)
def test_content_that_cannot_be_stored_is_omitted_but_the_record_is_kept(item: bytes) -> None:
    (found,) = page(b"[" + item + b"]").found
    assert (found.record_id, found.data) == ("1", NULL)


def test_a_record_is_kept_as_it_was_written() -> None:
    (found,) = page(b'[{"id": 1,  "price": 1.10, "big": 123456789012345678901234567890}]').found
    assert found.data == Raw(b'{"id": 1,  "price": 1.10, "big": 123456789012345678901234567890}')


BAD_PAGES = [b"", b"null", b"{", b"[1]", b"[{}]", b'[{"id": null}]', b'[{"id": {}}]', b"\xff"]
BAD_PAGES += [b'[{"id": true}]', b'[{"id": ""}]', rb'[{"id": "\u0000"}]', b'{"data": []}', b"[[]]"]
BAD_PAGES += [rb'[{"id": 1, "text": "\ud800"}]']


@pytest.mark.parametrize("body", [*BAD_PAGES, b'[{"id": "' + b"x" * 201 + b'"}]'])
def test_an_invalid_page_is_refused(body: bytes) -> None:
    with pytest.raises(BadPageError):
        page(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(body=JSON.map(lambda value: json.dumps(value).encode()) | st.binary())
def test_any_body_is_a_page_or_is_refused(body: bytes) -> None:
    try:
        mapping = Mapping(next="next", version="v", deleted="d")
        read = read_page(body, mapping, requested_cursor=None)
    except BadPageError:
        return
    assert all(0 < len(one.record_id) <= 200 for one in read.found)


TOML = """
[consignments]
url = "https://pos.example/api/consignments"
every_seconds = 60

[consignments.headers]
Authorization = "Bearer t0ken"

[consignments.mapping]
items = "data"

[consignments.job]
queue = "pos"
type = "consignment_changed"
"""


def test_feeds_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "feeds.toml"
    file.write_text(TOML)
    feed = read_feeds(str(file))["consignments"]

    assert (feed.every_seconds, feed.page_size, feed.mapping.items) == (60, 100, "data")
    assert feed.job is not None
    assert feed.job.attempts_max == 3
    assert "t0ken" not in repr(feed)


def test_feeds_are_read_from_json(tmp_path: Path) -> None:
    text = '{"a": {"url": "http://127.0.0.1:1/"}}'
    file = tmp_path / "feeds.json"
    file.write_text(text)

    assert read_feeds(text) == read_feeds(str(file)) == {"a": Feed(url="http://127.0.0.1:1/")}
    assert read_feeds(None) == read_feeds("{}") == {}


def test_every_five_minutes_and_once_a_day_is_usual() -> None:
    # S1-12, S1-27
    feed = Feed(url="http://127.0.0.1")
    assert (feed.every_seconds, feed.page_size, feed.reconcile_seconds) == (300, 100, 86400)


@pytest.mark.parametrize(
    "text",
    [
        "/no/such/file",
        "{",
        '{"a": {}}',
        '{"a": {"url": "ftp://x"}}',
        '{"a": {"url": "http://x", "evry_seconds": 1}}',
        '{"a": {"url": "http://x", "every_seconds": 0}}',
        '{"a": {"url": "http://x", "page_size": 1001}}',
        '{"a": {"url": "http://x", "job": {"queue": "q"}}}',
        '{"two words": {"url": "http://x"}}',
    ],
)
def test_bad_settings_are_refused_at_the_start(text: str) -> None:
    with pytest.raises(SetupError, match="DAYBOOK_UPSTREAMS"):
        read_feeds(text)


@pytest.mark.parametrize("text", ['{"a": "t0ken"', '{"a": {"headers": "t0ken"}}'])
def test_a_refusal_does_not_quote_the_settings(text: str) -> None:
    with pytest.raises(SetupError) as refused:
        read_feeds(text)
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize("sign", ["x", "\u00e9", "\x01", "\U0001f600"])
def test_the_job_of_the_largest_record_is_within_the_bounds_of_a_job(sign: str) -> None:
    content = b'{"text": "' + b"x" * (RECORD_BYTES_MAX - 12) + b'"}'
    item = {"id": sign * ID_CHARACTERS_MAX, "version": sign * REVISION_CHARACTERS_MAX}
    (found,) = page([item], version="version").found
    assert _data(Raw(content)) is not NULL
    record = UpstreamRecord(
        id=uuid7(),
        version=1,
        stream="s" * NAME_CHARACTERS_MAX,
        record_id=found.record_id,
        revision=found.revision,
        data=_data(Raw(content)),
        seen_at=NOON,
        updated_at=NOON,
    )
    job = RecordJob(queue="q", type="t").new_job(record, "changed").options
    assert checked(job, DirectJobRequest).subject == job.subject
    other = RecordJob(queue="q", type="t").new_job(replace(record, id=uuid7()), "changed").options
    assert other.subject != job.subject


def test_the_jobs_of_records_have_the_tags_of_the_feed() -> None:
    record = UpstreamRecord(
        id=uuid7(),
        version=1,
        stream="stock",
        record_id="1",
        revision="1",
        data=Raw(b"{}"),
        seen_at=NOON,
        updated_at=NOON,
    )
    job = RecordJob(queue="q", type="t", tags=("stock", "eu"))
    assert job.new_job(record, "changed").options.tags == ("stock", "eu")
