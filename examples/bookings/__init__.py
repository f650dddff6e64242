"""A firm that rents out machines: what happens after a booking is paid, done as jobs of Daybook.

Read `promotion.py` first, then `worker.py`; README.md says how to run it.
"""
