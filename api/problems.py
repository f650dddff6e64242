"""JSON in answers, and problems as RFC 9457 describes them: the same shape for every refusal."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

CODES = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


class JSONAnswer(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class Problem(JSONAnswer):
    """`error` is the stable code that clients look at; `detail` is for people."""

    media_type = "application/problem+json"

    def __init__(
        self, status: HTTPStatus, detail: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        code = CODES[status]
        content = {
            "type": f"urn:daybook:problem:{code}",
            "title": status.phrase,
            "status": status,
            "detail": detail,
            "error": code,
        }
        super().__init__(content, status_code=status, headers=headers)


async def not_found(request: Request, _error: Exception) -> Response:
    return Problem(HTTPStatus.NOT_FOUND, f"There is nothing at {request.url.path}.")


async def method_not_allowed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "")
    detail = f"{request.url.path} takes {allowed}, not {request.method}."
    return Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=error.headers)


async def internal_error(_request: Request, _error: Exception) -> Response:
    detail = "This is a defect of Daybook; its log says more."
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
