"""Rebuilds a projection from the log, compares it with the running tables, and switches to it while
the service runs.

`targets` lists the projections, `shadow_tables` creates copies, `replay` folds the log into them,
`comparison` finds differences, `switch` exchanges the tables, `rebuild` runs these steps, `refill`
fills the tables after an import, and `audit_log` records the operator and the reason.
"""
