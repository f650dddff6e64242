"""Rebuilding: every projection can be made anew from the log, compared with the running one, and
put in its place while the service goes on.

`targets` says what can be rebuilt, `copies` makes tables like the running ones in a schema of their
own, `replay` folds the log into them, `comparison` tells whether they are equal, `switch` exchanges
them, and `rebuild` does all of it in the right order. `logbook` writes into the log who did it and
why; nothing follows from that.
"""
