"""The auditor: reads a log from its beginning and says which promises it keeps.

Of the service it knows the events and what they mean, which is `domain/`, and nothing else.
"""
