"""`daybook quarantine` without data; tests/system/test_quarantine.py has the rest."""

from tests.support.sample_log import run


def test_an_empty_list_is_reported_on_stderr(database: str) -> None:
    for arguments in (["quarantine", "list"], ["quarantine", "list", "--json"]):
        told = run(database, *arguments)
        assert (told.exit_code, told.stdout) == (0, "")
        assert told.stderr == "Nothing is in quarantine.\n"
