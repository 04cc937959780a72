"""From decided claims to verdicts.json, verdicts.md and the printed table. Nothing descriptive is here."""
