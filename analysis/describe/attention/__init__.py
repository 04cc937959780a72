"""Attention suites described: true error beside certificate, cell by cell. No verdict reads any of it.

`describe` finds the suites; one file for each table: `budgets` and `within`, `errors`, `calibration`,
`layers`, `heads`, `rare`, `deployed`, `demonstration`.
"""

from analysis.describe.attention.describe import Attention, describe

__all__ = ["Attention", "describe"]
