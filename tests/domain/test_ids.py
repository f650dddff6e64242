"""Derived ids equal those of the standard library."""

from uuid import UUID, uuid4, uuid5

from hypothesis import given
from hypothesis import strategies as st

from daybook.domain.ids import derived_id, id_of


@given(st.uuids(), st.text())
def test_a_derived_id_equals_uuid5(namespace: UUID, name: str) -> None:
    derived = derived_id(namespace, name)
    assert derived == uuid5(namespace, name)
    assert derived.version == 5
    assert str(derived) == str(uuid5(namespace, name))


def test_an_id_of_an_integer_equals_its_uuid() -> None:
    one = uuid4()
    assert id_of(one.int) == one
    assert hash(id_of(one.int)) == hash(one)
    assert id_of(one.int).is_safe is UUID(int=one.int).is_safe
