"""Measurements, printed as ratios of things measured side by side in one run. Never part of the tests.

`make bench` runs all of them; `python -m bench bucket` runs one.
"""
