"""Responses that the connection sends before there is a request; it is closed afterwards."""

from http import HTTPStatus

import orjson
from msgspec import Struct

from daybook.api.http.problems import Problem, problem_json


class RejectedRequest(Struct, frozen=True):
    code: str
    response: bytes
    """The complete HTTP message."""


def _rejection(status: HTTPStatus, code: str, detail: str, **headers: str) -> RejectedRequest:
    body = orjson.dumps(problem_json(status, code, detail))
    all_headers = {
        "content-type": Problem.media_type,
        "content-length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
        "connection": "close",
    }
    lines = [f"HTTP/1.1 {int(status)} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in all_headers.items()]
    return RejectedRequest(code, "\r\n".join([*lines, "", ""]).encode() + body)


BAD_FRAMING = _rejection(
    HTTPStatus.BAD_REQUEST, "bad_framing", "The request is not valid HTTP/1.1."
)
UNKNOWN_TRANSFER_CODING = _rejection(
    HTTPStatus.NOT_IMPLEMENTED,
    "unknown_transfer_coding",
    "Send the body plain or chunked: no other Transfer-Encoding is supported.",
)
BAD_HOST = _rejection(
    HTTPStatus.BAD_REQUEST,
    "bad_host",
    "Send one Host header with a name or an address, and an optional port.",
)
BAD_ENCODING = _rejection(
    HTTPStatus.BAD_REQUEST, "bad_encoding", "The path must be percent-encoded UTF-8."
)
BAD_VERSION = _rejection(
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "bad_version", "Use HTTP/1.1 or HTTP/1.0."
)
URI_TOO_LONG = _rejection(
    HTTPStatus.REQUEST_URI_TOO_LONG,
    "uri_too_long",
    "The URL is too long: shorten its path or query.",
)
HEADERS_TOO_LARGE = _rejection(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "headers_too_large",
    "The headers are too many or too large: remove unneeded ones.",
)
TOO_SLOW = _rejection(
    HTTPStatus.REQUEST_TIMEOUT,
    "too_slow",
    "The request took too long to arrive. Nothing was done; send it again.",
)
TOO_MANY_CONNECTIONS = _rejection(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too_many_connections",
    "Too many connections are open: close some, or reuse open ones.",
    retry_after="1",
)
