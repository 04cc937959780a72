"""How a run of the analysis ends: every mistake becomes one sentence and an exit code."""

import os
import sys
from collections.abc import Callable

from analysis.verdict.write import complain
from kvexp.errors import KvexpError

TRACEBACK = "KVEXP_TRACEBACK"


def ended(run: Callable[[], int]) -> int:
    """The exit code of `run`, or of the mistake that ended it."""
    try:
        return run()
    except KvexpError as error:
        complain(f"error: {error}")
        for line in error.details:
            complain(f"  {line}")
        return error.exit_code
    except BrokenPipeError:  # the reader, for instance `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        complain(f"error: {error.filename or 'a file'}: {error.strerror}")
        return 2
    except Exception as error:
        complain(f"internal error: {words_of(error)}")
        return 1


def words_of(error: Exception) -> str:
    """An error that nobody foresaw, in a line. Raises it again where its traceback is asked for."""
    if os.environ.get(TRACEBACK):
        raise error
    return f"{type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)"
