"""Queries on upstreams: poll progress and imported records.

Feeds are configured by a setting, not here, because their headers are secrets.
"""

from typing import Annotated, Any, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.paging import PageCursor, decode_cursor
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import read_name_of
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.domain.errors import NotFoundError
from daybook.domain.upstreams.record import UpstreamRecord
from daybook.domain.upstreams.upstream import Upstream
from daybook.projections.page_cursor import write_cursor
from daybook.projections.upstreams.upstream_records import one_record, read_records
from daybook.projections.upstreams.upstreams import all_upstreams, one_upstream

PAGE_DEFAULT = 100
PAGE_MAX = 1000
FIRST = UUID(int=0)


class PollJSON(TypedDict):
    reconciles: bool
    beganAt: Moment
    pages: int


class UpstreamJSON(TypedDict):
    name: str
    cursor: str | None
    poll: PollJSON | None
    polledAt: Moment | None
    reconciledAt: Moment | None
    error: str | None
    updatedAt: Moment
    version: int


class RecordJSON(TypedDict):
    id: str
    revision: str
    deleted: bool
    vanished: bool
    data: Any
    seenAt: Moment
    updatedAt: Moment


class AllUpstreamsAnswer(TypedDict):
    upstreams: list[UpstreamJSON]


class OneUpstreamAnswer(TypedDict):
    upstream: UpstreamJSON


class RecordPageAnswer(TypedDict):
    records: list[RecordJSON]
    nextCursor: str | None


class RecordListing(Parameters, frozen=True):
    record: (
        Annotated[
            str, Meta(min_length=1, max_length=200, description="Only the record with this id.")
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Records per page at most.")] = (
        PAGE_DEFAULT
    )
    cursor: PageCursor | None = None


class UpstreamCursor(Struct, frozen=True):
    record: UUID


async def list_upstreams(_: NoParameters, request: Request) -> AllUpstreamsAnswer:
    """All upstreams that were ever polled, by name."""
    found = await service_of(request).read(all_upstreams)
    return {"upstreams": [upstream_json(upstream) for upstream in found]}


async def get_upstream(_: NoParameters, request: Request) -> OneUpstreamAnswer:
    """One upstream: its poll progress and last error."""
    return {"upstream": upstream_json(await _upstream(request))}


async def list_records(query: RecordListing, request: Request) -> RecordPageAnswer:
    """The imported records of an upstream, including deleted ones."""
    stream = (await _upstream(request)).name
    if query.record is not None:
        found = await service_of(request).read(
            lambda reader: one_record(reader, stream, query.record or "")
        )
        return {"records": [record_json(found)] if found else [], "nextCursor": None}
    cursor = decode_cursor(query.cursor, UpstreamCursor)
    after = cursor.record if cursor else FIRST
    records = await service_of(request).read(
        lambda reader: read_records(reader, stream, after=after, limit=query.limit + 1)
    )
    page = records[: query.limit]
    is_more = len(records) > query.limit
    return {
        "records": [record_json(record) for record in page],
        "nextCursor": write_cursor(UpstreamCursor(page[-1].id)) if is_more else None,
    }


def upstream_json(upstream: Upstream) -> UpstreamJSON:
    poll = upstream.poll
    return {
        "name": upstream.name,
        "cursor": upstream.cursor,
        "poll": {
            "reconciles": poll.reconciles,
            "beganAt": moment(poll.began_at),
            "pages": poll.pages_count,
        }
        if poll
        else None,
        "polledAt": moment(upstream.polled_at) if upstream.polled_at else None,
        "reconciledAt": moment(upstream.reconciled_at) if upstream.reconciled_at else None,
        "error": upstream.error,
        "updatedAt": moment(upstream.updated_at),
        "version": upstream.version,
    }


def record_json(record: UpstreamRecord) -> RecordJSON:
    return {
        "id": record.record_id,
        "revision": record.revision,
        "deleted": record.deleted,
        "vanished": record.vanished,
        "data": orjson.Fragment(bytes(record.data)),
        "seenAt": moment(record.seen_at),
        "updatedAt": moment(record.updated_at),
    }


async def _upstream(request: Request) -> Upstream:
    name = read_name_of("an upstream", request.path_params["name"])
    upstream = await service_of(request).read(lambda reader: one_upstream(reader, name))
    if upstream is None:
        raise NotFoundError("upstream", name)
    return upstream


routes: list[Route] = [
    QueryEndpoint("/api/upstreams", list_upstreams, scope=AUDITOR).route,
    QueryEndpoint("/api/upstreams/{name}", get_upstream, scope=AUDITOR).route,
    QueryEndpoint(
        "/api/upstreams/{name}/records", list_records, scope=AUDITOR, parameters=RecordListing
    ).route,
]
