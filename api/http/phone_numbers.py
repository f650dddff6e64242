"""Mobile numbers: one way to write each, so that one phone is one guest however it was typed.

The form is that of E.164: a plus, the country's calling code and the number, 8 to 15 digits.
"""

import re

from daybook.api.http.request_reader import unprocessable

WRITTEN_CHARACTERS_MAX = 40
# How people set digits apart. Digits of other scripts are digits to Python, but not here.
SEPARATORS = re.compile(r"[ \u00a0\u202f./()-]")
WRITTEN = re.compile(r"(?:\+|00)?[0-9 \u00a0\u202f./()-]+")
# In +44 (0)20 the zero is to be dialled or not, depending on where one is.
OPTIONAL_ZERO = re.compile(r"\(0+\)")
E164 = re.compile(r"\+[1-9][0-9]{7,14}")


def normalise_phone_number(text: str, *, calling_code: str | None = None) -> str:
    """As E.164 writes it. Without a country in front it is of the country of `calling_code`."""
    text = text.strip()
    if len(text) <= WRITTEN_CHARACTERS_MAX and WRITTEN.fullmatch(text):
        number = _with_country(text, calling_code)
        if number is not None and E164.fullmatch(number):
            return number
    example = f"+{calling_code} 171 1234567" if calling_code else "+49 171 1234567"
    raise unprocessable(
        "bad_phone", f"Write the mobile number with its country code, such as {example}."
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
    # Within a country a zero in front says that an area's code follows; nobody abroad dials it.
    return f"+{calling_code}{digits.removeprefix('0')}"
