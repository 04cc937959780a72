"""The `kvexp` command line. Settings that change results stand in conf/; no option changes a result.

Every verb is a file of `kvexp/verbs`. The file has WORDS (what follows the verb), arguments(parser) and
run(parsed, console) -> exit code, and is imported when the verb is called.
Exit codes: 0 done, 1 internal error, 2 usage, 3 incomplete, 4 integrity.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from kvexp.errors import ConfigError, KvexpError, printable, suggest

TRACEBACK = "KVEXP_TRACEBACK"
VERBS = {
    "plan": "Show the shards and generations of a study.",
    "fetch": "Download the models and data that a study needs.",
    "submit": "Run the missing shards of a study.",
    "cancel": "Remove this study's jobs from Slurm's queue.",
    "account": "Export Slurm's accounting of this study's jobs.",
    "status": "Show the state of each shard.",
    "verdicts": "Decide the claims of a study from its logs.",
    "report": "Verify a study, then write its verdicts and pages.",
    "new-study": "Copy a study and its registrations under a new name.",
    "seal": "Seal registrations: record the digests of claims, grid and code before data exist.",
    "stamp": "Get signed times for seals and locks from a time-stamp authority.",
    "lock": "Lock suites: record the digests of their logs before anyone looks at the logs.",
    "verify": "Check seals, stamps, attempts and locks.",
    "amend": "Register a change of sealed files.",
    "try": "Answer one question with several arms and show the signals of each.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if threading.current_thread() is threading.main_thread():
        # A plain kill ends like Ctrl-C: workers are stopped, and a sentence says where things stand.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        parsed = _parse(sys.argv[1:] if arguments is None else arguments)
        return int(parsed.run(parsed, _console()))
    except KvexpError as error:
        return _say(str(error), error.exit_code, error.details)
    except KeyboardInterrupt:
        return _say("interrupted; what is on disk stays, submit again to continue", 130)
    except BrokenPipeError:  # the reader, for instance `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _say(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        import traceback  # here: only a bug waits for it

        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        return _say(
            f"internal error: {type(error).__name__}: {error} (at {where}; {TRACEBACK}=1 shows all)", 1
        )


def _console() -> Any:
    """A pipe has no width: without a terminal nothing is cut or folded."""
    from rich.console import Console  # here: help and mistakes are plain text

    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 1000)


def _say(sentence: str, exit_code: int, details: Sequence[str] = ()) -> int:
    print(f"kvexp: {printable(sentence)}", file=sys.stderr)
    for line in details:
        print(f"  {printable(line)}", file=sys.stderr)
    return exit_code


class _Parser(argparse.ArgumentParser):
    """A mistake is one sentence."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')} (see `{self.prog} --help`)")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Words may stand before, between and after options, which argparse alone does not allow."""
    parser = _Parser(prog="kvexp", description="Pre-registered experiments on KV-cache eviction.")
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="called")
    called = next((word for word in arguments if not word.startswith("-")), None)
    if called is not None and called not in VERBS:
        raise ConfigError(f"there is no verb {called!r}; {suggest(called, list(VERBS))}")
    options: list[str] = []
    for name, text in VERBS.items():
        sub = verbs.add_parser(name, help=text, description=text)
        if name == called:
            module = import_module(f"kvexp.verbs.{name.replace('-', '_')}{'_' * (name == 'try')}")
            sub.usage = f"kvexp {name} {module.WORDS} [OPTION ...]"
            sub.set_defaults(run=module.run, overrides=[])
            module.arguments(sub)
            options = [option for option in sub._option_string_actions if option.startswith("--")]
    parsed, rest = parser.parse_known_args(arguments)
    if unknown := [text for text in rest if text.startswith("-")]:
        raise ConfigError(f"{parsed.called} has no option {unknown[0]}; {suggest(unknown[0], options)}")
    parsed.overrides += rest
    return parsed


if __name__ == "__main__":
    sys.exit(main())
