"""Pages for people: report.html with everything that was decided and described, generations.html to browse.

`page` and what it imports is the report, `generations` and `browser` are the browser of answers. Each page is
one file: styles, scripts and figures are inside, nothing is loaded from anywhere, and without scripts the
report says the same. What comes from logs and registrations passes `templating`, which escapes it. No seal
covers any of it, and no verdict reads it.
"""
