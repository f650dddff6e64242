"""Measurements, side by side in one run: `./run bench …`."""
