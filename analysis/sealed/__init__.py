"""What a verdict is bound to: registrations and their seals, locks, looks, evidence, and the blind run."""
