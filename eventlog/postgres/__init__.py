"""PostgreSQL: connections, pipelines, binary arrays and migrations."""
