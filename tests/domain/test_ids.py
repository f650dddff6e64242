"""Ids made quickly are those that were made before."""

from uuid import UUID, uuid4, uuid5

from hypothesis import given
from hypothesis import strategies as st

from daybook.domain.ids import derived_id, id_of


@given(st.uuids(), st.text())
def test_an_id_follows_from_another_as_the_standard_says(namespace: UUID, name: str) -> None:
    derived = derived_id(namespace, name)
    assert derived == uuid5(namespace, name)
    assert derived.version == 5
    assert str(derived) == str(uuid5(namespace, name))


def test_an_id_from_its_number_is_that_id() -> None:
    one = uuid4()
    assert id_of(one.int) == one
    assert hash(id_of(one.int)) == hash(one)
    assert id_of(one.int).is_safe is UUID(int=one.int).is_safe
