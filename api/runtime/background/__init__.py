"""Background tasks that operators start: rebuilds, verification and the doctor.

Each runs in a child process, so that no request waits while it folds the log, and it can be stopped
at any moment. `protocol.py` has the messages, `task.py` the service's side; the child process is
`api/server/background_process.py`.
"""
