"""How long a command takes before it says anything: processor time in units of a bare `python -c pass`.

    python scripts/bench_start.py [ROUNDS]

Every round starts each command once, so that a busy machine slows all alike; the least counts. Bytecode
is kept in a temporary folder, as Python keeps it for whoever has run a command before.
"""

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
# Command, most units that it may take.
COMMANDS = {
    "--help": 5,
    "plna": 12,
    "plan --jsn": 12,
    "plan nostudy": 12,
    "plan embedded bogus=1": 12,
    "status nostudy": 12,
    "status embedded": 12,
    "verify nostudy": 12,
    "submit nostudy": 12,
    "try --file README.md --question x --arms poison": 12,
    "plan embedded": 30,
}


def seconds(arguments: list[str], bytecode: str) -> float:
    """Processor time of one start of Python."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": bytecode}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print a line for each command; the exit code is 1 if one takes too long."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    starts = {"": ["-c", "pass"], **{words: ["-m", "kvexp.cli", *words.split()] for words in COMMANDS}}
    least = dict.fromkeys(starts, float("inf"))
    with TemporaryDirectory() as bytecode:
        for _ in range(rounds + 1):  # the first writes bytecode
            least = {words: min(least[words], seconds(starts[words], bytecode)) for words in starts}
    unit = least.pop("")
    print(f"unit: {1000 * unit:.0f} ms of processor time")
    for words, spent in least.items():
        print(f"{spent / unit:6.1f} of {COMMANDS[words]:2}  kvexp {words}")
    return int(any(least[words] > most * unit for words, most in COMMANDS.items()))


if __name__ == "__main__":
    sys.exit(main())
