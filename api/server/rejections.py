"""What is answered before there is a request: by the connection itself, which is then closed."""

from http import HTTPStatus

import orjson
from msgspec import Struct

from daybook.api.http.problems import Problem, problem_json


class RejectedRequest(Struct, frozen=True):
    code: str
    answer: bytes
    """As it goes over the wire."""


def _refused(status: HTTPStatus, code: str, detail: str, **headers: str) -> RejectedRequest:
    body = orjson.dumps(problem_json(status, code, detail))
    told = {
        "content-type": Problem.media_type,
        "content-length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
        "connection": "close",
    }
    lines = [f"HTTP/1.1 {int(status)} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in told.items()]
    return RejectedRequest(code, "\r\n".join([*lines, "", ""]).encode() + body)


BAD_FRAMING = _refused(
    HTTPStatus.BAD_REQUEST, "bad_framing", "This is no HTTP/1.1: look at how it was sent."
)
UNKNOWN_TRANSFER_CODING = _refused(
    HTTPStatus.NOT_IMPLEMENTED,
    "unknown_transfer_coding",
    "Send the body as it is or in chunks: no other Transfer-Encoding is understood here.",
)
BAD_HOST = _refused(
    HTTPStatus.BAD_REQUEST,
    "bad_host",
    "Send one header Host, with a name or an address, and a port if need be.",
)
BAD_ENCODING = _refused(
    HTTPStatus.BAD_REQUEST, "bad_encoding", "The path must be percent-encoded UTF-8."
)
BAD_VERSION = _refused(
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "bad_version", "Ask by HTTP/1.1 or HTTP/1.0."
)
URI_TOO_LONG = _refused(
    HTTPStatus.REQUEST_URI_TOO_LONG,
    "uri_too_long",
    "The address is too long: ask for less in one request.",
)
HEADERS_TOO_LARGE = _refused(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "headers_too_large",
    "These are too many headers, or too large ones: leave out what is not needed.",
)
TOO_SLOW = _refused(
    HTTPStatus.REQUEST_TIMEOUT,
    "too_slow",
    "The request took too long to arrive; nothing was done, so send it again.",
)
TOO_MANY_CONNECTIONS = _refused(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too_many_connections",
    "There are too many connections: close some, or use those that are open again.",
    retry_after="1",
)
