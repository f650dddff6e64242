"""The auditor: reads a log from its beginning and checks the invariants. Of the service it uses
only the events and folds of `domain/` and the event codec."""
