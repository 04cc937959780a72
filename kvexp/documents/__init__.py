"""Pre-registration: what is claimed, and what would prove it wrong.

`condition` and `registration` are leaves that the analysis may import; they import no other part of kvexp
but `kvexp.errors`.
"""
