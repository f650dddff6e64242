"""Query parameters: one canonical form per value, and an error for any other."""

from enum import StrEnum
from typing import Annotated, Any

import pytest
from msgspec import Meta

from daybook.api.http.problems import BadInputError
from daybook.api.http.query_parameters import Parameters, read_parameters


class Size(StrEnum):
    SMALL = "SMALL"
    LARGE = "LARGE"


class Wish(Parameters, frozen=True):
    how_many: Annotated[int, Meta(ge=1, le=9)] = 5
    size: Size | None = None
    is_hot: bool = False
    name: Annotated[str, Meta(min_length=1, max_length=5, pattern="^[a-z]+$")] | None = None
    remark: str | None = None
    seconds: Annotated[float, Meta(ge=0, le=30)] = 0.0


@pytest.mark.parametrize(
    ("query", "wish"),
    [
        (b"", Wish()),
        (b"howMany=9", Wish(how_many=9)),
        (b"size=LARGE&isHot=true", Wish(size=Size.LARGE, is_hot=True)),
        (b"isHot=false&name=ada", Wish(name="ada")),
        (b"remark=null", Wish(remark="null")),
        (b"remark=", Wish(remark="")),
        (b"seconds=5", Wish(seconds=5.0)),
        (b"seconds=0.50", Wish(seconds=0.5)),
    ],
)
def test_a_query_is_read_into_its_type(query: bytes, wish: Wish) -> None:
    assert read_parameters(query, Wish) == wish


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("howMany=0", "The parameter howMany must be a whole number from 1 to 9."),
        ("howMany=05", "The parameter howMany must be a whole number from 1 to 9."),
        ("howMany=5.0", "The parameter howMany must be a whole number from 1 to 9."),
        ("howMany=%2B5", "The parameter howMany must be a whole number from 1 to 9."),
        ("howMany=null", "The parameter howMany must be a whole number from 1 to 9."),
        ("size=small", "The parameter size must be one of SMALL, LARGE."),
        ("size=null", "The parameter size must be one of SMALL, LARGE."),
        ("isHot=True", "The parameter isHot must be true or false."),
        ("isHot=1", "The parameter isHot must be true or false."),
        ("name=", "The parameter name must be a text of 1 to 5 characters of the form ^[a-z]+$."),
        ("seconds=31", "The parameter seconds must be a number from 0 to 30."),
        ("seconds=NaN", "The parameter seconds must be a number from 0 to 30."),
        ("seconds=05", "The parameter seconds must be a number from 0 to 30."),
        ("how_many=5", "The parameter 'how_many' is unknown."),
        ("howMany=5&howMany=5", "The parameter howMany is given twice."),
    ],
)
def test_any_other_query_is_refused_with_the_allowed_values(query: str, sentence: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read_parameters(query.encode(), Wish)

    result: Any = refused.value
    assert (result.problem.status_code, str(result)) == (400, sentence)
