"""`daybook quarantine` beside the data that tests/system/test_quarantine.py is about."""

from tests.support.sample_log import run


def test_an_empty_list_is_told_beside_the_output(database: str) -> None:
    for arguments in (["quarantine", "list"], ["quarantine", "list", "--json"]):
        told = run(database, *arguments)
        assert (told.exit_code, told.stdout) == (0, "")
        assert told.stderr == "Nothing is in quarantine.\n"
