"""The frozen analysis: logs in, verdicts out. Needs neither torch nor the code that made the logs.

    python -m analysis results/<study>

`sealed` finds registrations and checks seals and locks, `load` turns the logs into one table aligned with
the grid, `data` selects and labels the rows of a population, `statistics` computes, `claims/` holds one file
per claim, `decide` puts the registration's conditions to the numbers, `verdict` writes what was decided.
These are covered by every seal (`kvexp.documents.manifest.CORE`).

Only then `description` and what it imports is loaded: `details`, `control` and `attention` describe without
deciding, `text`, `tables` and `figures` write. No seal covers them, and anything may be added there.
"""
