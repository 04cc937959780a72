"""What the paper reports, number by number, beside what a study found."""

from analysis.describe.paper.beside import beside

__all__ = ["beside"]
