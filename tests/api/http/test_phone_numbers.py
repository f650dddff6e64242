"""Normalisation of mobile numbers: one phone is one guest, however its number was typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from daybook.api.http.phone_numbers import E164, normalise_phone_number
from daybook.api.http.problems import BadInputError


@pytest.mark.parametrize(
    "text",
    [
        "+491711234567",
        " +49 171 1234567 ",
        "+49 (171) 123-45-67",
        "+49.171.1234567",
        "0049 171 / 1234567",
        "+49\u00a0171\u202f1234567",
    ],
)
def test_every_spelling_of_a_number_normalises_to_one(text: str) -> None:
    assert normalise_phone_number(text) == "+491711234567"


@pytest.mark.parametrize("text", ["0171 1234567", "171 1234567", "+49 171 1234567"])
def test_with_a_calling_code_a_number_of_the_country_needs_none(text: str) -> None:
    assert normalise_phone_number(text, calling_code="49") == "+491711234567"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+44 (0)20 7946 0958",
        "call me",
        "+49 171 CALLME",
        "+" + "1" * 40,
        "+1234567",
        "+1234567890123456",
        "+0171 1234567",
        "++49 171 1234567",
        "+٤٩١٧١١٢٣٤٥٦٧",
        "+\uff14\uff19\uff11\uff17\uff11\uff11\uff12\uff13\uff14\uff15\uff16\uff17",
        "+49 171 1234567\n+49 171 7654321",
        "+49 171 1234567\0",
        "0171 1234567",
    ],
)
def test_an_invalid_number_is_refused_with_an_example(text: str) -> None:
    """BAD_INPUT 48."""
    with pytest.raises(BadInputError) as refused:
        normalise_phone_number(text)

    assert refused.value.problem.status_code == 422
    assert b"urn:daybook:problem:bad-phone" in refused.value.problem.body
    assert b"+49 171 1234567" in refused.value.problem.body


@given(some.text(alphabet="0123456789+ ()-./\u00a0a٤", max_size=50))
def test_normalising_yields_e164_and_is_idempotent(text: str) -> None:
    try:
        number = normalise_phone_number(text, calling_code="49")
    except BadInputError:
        return
    assert E164.fullmatch(number)
    assert normalise_phone_number(number) == number
