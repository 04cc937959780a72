"""The analysis: logs in, verdicts out. Needs neither torch nor the code that made the logs.

    python -m analysis results/<study>

`core` decides, with the file of each claim in `claims`. Every seal covers them (`kvexp.documents.manifest`),
and docs/reading-the-core.md leads through them. Only when the verdicts are written and printed, `describe`
and `render` are loaded. No seal covers these, and anything may be added there.
"""
