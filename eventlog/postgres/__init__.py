"""PostgreSQL: connections, pipelines, binary arrays, migrations and the embedded server."""
