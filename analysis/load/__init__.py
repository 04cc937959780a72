"""From a results folder to one table aligned with the grid, and a list of what is wrong with it."""

from analysis.load.problems import Problem
from analysis.load.study import Study, check_folder, load
from analysis.load.under import Under

__all__ = ["Problem", "Study", "Under", "check_folder", "load"]
