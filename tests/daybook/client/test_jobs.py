"""The SDK repeats the options of jobs, as it imports nothing of the service: both are equal."""

import pytest
from msgspec.structs import fields

from daybook.api.jobs.requests import NewJobBody
from daybook.api.jobs.responses import BriefJob, JobJSON
from daybook.api.messages.responses import Item
from daybook.client.jobs import EnqueueOptions, FollowUp, Job, JobFilter, JobOptions, NewJob, Wire
from daybook.client.messages import NewMessage
from daybook.domain.jobs import create, job
from daybook.projections.jobs import job_filter

TWINS = [
    (JobOptions, job.BoundedOptions),
    (NewJob, NewJobBody),
    (FollowUp, create.FollowUp),
    (NewMessage, Item),
]
IGNORED = {"traceId"}  # Accepted of other clients, without effect
NOT_OPTIONAL = {"queue", "type", "payload"}  # Parameters of `enqueue` of their own


@pytest.mark.parametrize(("twin", "kind"), TWINS)
def test_a_request_of_the_sdk_has_the_fields_of_the_service(
    twin: type[Wire], kind: type[job.JobOptions]
) -> None:
    ours = {one.name: (one.encode_name, one.required) for one in fields(twin)}
    theirs = {one.name: (one.encode_name, one.required) for one in fields(kind)}
    assert ours == {name: one for name, one in theirs.items() if one[0] not in IGNORED}


@pytest.mark.parametrize("twin", [twin for twin, _ in TWINS])
def test_an_option_that_is_not_given_gets_the_default_of_the_service(twin: type[Wire]) -> None:
    assert {one.default for one in fields(twin) if not one.required} == {None}


def test_the_keyword_arguments_of_enqueue_are_the_optional_fields() -> None:
    assert {*EnqueueOptions.__annotations__} == {*NewJob.__struct_fields__} - NOT_OPTIONAL


def test_the_filters_of_the_sdk_are_those_of_the_service() -> None:
    assert {*JobFilter.__annotations__} == {*job_filter.JobFilter.__struct_fields__}


def test_a_job_of_the_sdk_has_the_members_of_the_service() -> None:
    assert {*Job.__struct_encode_fields__} == {*JobJSON.__annotations__}


def test_a_member_that_the_service_omits_has_its_default_in_the_sdk() -> None:
    omitted = {one.name: one.default for one in fields(BriefJob) if not one.required}
    ours = {one.name: one.default for one in fields(Job)}
    assert omitted == {name: ours[name] for name in omitted}
