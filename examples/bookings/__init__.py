"""A firm that rents out machines: Daybook runs the jobs that follow a paid booking.

Read `promotion.py` first, then `worker.py`; README.md says how to run it.
"""
