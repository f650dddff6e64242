"""`daybook quarantine` without data; tests/system/test_quarantine.py has the rest."""

from tests.support.sample_log import run


def test_an_empty_list_is_reported_on_stderr(database: str) -> None:
    for arguments in (["quarantine", "list"], ["quarantine", "list", "--json"]):
        result = run(database, *arguments)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "Nothing is in quarantine.\n"
