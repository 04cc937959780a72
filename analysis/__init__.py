"""The frozen analysis: logs in, verdicts out. Needs neither torch nor the code that made the logs.

    python -m analysis results/<study>

`load` turns the logs into one table aligned with the grid, `data` selects and labels the rows of a
population, `statistics` computes, `claims/` holds one file per claim, `decide` puts the registration's
conditions to the numbers, `details` and `attention` describe without deciding, `text`, `as_json`, `tables`
and `figures` write.
"""
