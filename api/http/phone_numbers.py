"""Normalises mobile numbers to E.164, so that one phone is one guest however it was typed.

E.164 is a plus, the country's calling code and the number, 8 to 15 digits.
"""

import re

from daybook.api.http.request_reader import unprocessable

WRITTEN_CHARACTERS_MAX = 40
SEPARATORS = re.compile(r"[ \u00a0\u202f./()-]")
# [0-9] instead of \d, which also matches digits of other scripts.
WRITTEN = re.compile(r"(?:\+|00)?[0-9 \u00a0\u202f./()-]+")
# In +44 (0)20 the zero is dialled only within the country.
OPTIONAL_ZERO = re.compile(r"\(0+\)")
E164 = re.compile(r"\+[1-9][0-9]{7,14}")


def normalise_phone_number(text: str, *, calling_code: str | None = None) -> str:
    """Returns the number in E.164. `calling_code` completes a number without a country code."""
    text = text.strip()
    if len(text) <= WRITTEN_CHARACTERS_MAX and WRITTEN.fullmatch(text):
        number = _with_country(text, calling_code)
        if number is not None and E164.fullmatch(number):
            return number
    example = f"+{calling_code} 171 1234567" if calling_code else "+49 171 1234567"
    raise unprocessable(
        "bad_phone", f"Send the mobile number with its country code, such as {example}."
    )


def _with_country(text: str, calling_code: str | None) -> str | None:
    if OPTIONAL_ZERO.search(text):
        return None
    digits = SEPARATORS.sub("", text)
    if digits.startswith("+"):
        return digits
    if digits.startswith("00"):
        return f"+{digits[2:]}"
    if calling_code is None:
        return None
    # The leading zero of a national number is not part of E.164.
    return f"+{calling_code}{digits.removeprefix('0')}"
