"""What all tests share: the servers of catchment.testing, as fixtures."""

from __future__ import annotations

pytest_plugins = ["catchment.testing.fixtures"]
