"""`python -m catchment` is `catchment`."""

from __future__ import annotations

from catchment.cli.main import main

main()
