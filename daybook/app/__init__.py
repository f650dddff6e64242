"""The app: jobs as typed functions, on top of client, worker and transactional enqueue."""
