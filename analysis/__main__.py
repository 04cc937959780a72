"""`python -m analysis results/<study>`."""

from analysis.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
