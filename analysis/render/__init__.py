"""Tables, verdicts and descriptions as CSV, Markdown, HTML, JSON and text."""
