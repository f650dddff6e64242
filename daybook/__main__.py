"""`python -m daybook` is `daybook`."""

from daybook.cli.main import main

main()
