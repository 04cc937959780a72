"""The frozen core: from logs and registrations to verdicts. A seal covers this folder whole."""
