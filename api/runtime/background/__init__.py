"""Long work that people ask the service for: rebuilding tables, and looking for what is wrong.

It is done by a process of its own, so that no request waits while it folds the log, and it can be
ended at any moment. `words.py` is what the two say to each other, `process.py` the one that works,
`errand.py` the side of the service.
"""
