"""Results folders with known truths: rows as the loader demands them, and answers drawn to targets."""
