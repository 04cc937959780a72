"""Registrations that mean harm, or confuse: a clear sentence within a second and 200 MB."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "preregistration" / "embedded" / "R.toml").read_text()
GAIN = 'kill = "gain.hi < 0"'
FIRST = 'format = "kvexp-registration/1"\n'
MEGABYTES, SECONDS = 200, 10.0

# Run as a program of its own, so that time and memory are those of the file alone.
LOADER = r"""
import json, re, sys, time
from pathlib import Path
from kvexp.ceremony.lint import registrations
from kvexp.documents.source import RegistrationError
started, said = time.process_time(), None
try:
    registrations(Path(sys.argv[1]).parent, Path("analysis/claims"))
except RegistrationError as error:
    said = str(error)
used = time.process_time() - started
# Not ru_maxrss: that of a new program begins with its parent's.
peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([said, used, int(peak[1]) / 1024]))
"""


def loaded(path):
    """What load says (None: it accepts the file), its processor seconds, and the program's megabytes."""
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def refused(path, *words):
    """The file is refused in one line, in time and memory, with all these words."""
    said, seconds, megabytes = loaded(path)
    assert said is not None
    assert seconds < SECONDS
    assert megabytes < MEGABYTES
    assert said.isprintable()
    assert len(said) < 600 + len(str(path))
    assert said.startswith(str(path))
    for word in words:
        assert word in said
    return said


def written(tmp_path, text):
    path = tmp_path / "R.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def put(old, new):
    assert SHIPPED.count(old) >= 1, old
    return SHIPPED.replace(old, new, 1)


def parameter(value):
    return put("q = 0.25,", f"q = {value},")


def kill(text):
    return put(GAIN, f'kill = "{text}"')


def at(old):
    """The line on which the text first stands."""
    return SHIPPED[: SHIPPED.index(old)].count("\n") + 1


VARIANT = '"a{0}" = {{ parameters = {{ q = 0.{0} }} }}\n'
MANY = "".join(map(VARIANT.format, range(1, 4_000)))

CASES = {
    "arrays in arrays": (parameter("[" * 9_000 + "]" * 9_000), "nested too deeply"),
    "arrays, somewhat": (parameter("[" * 40 + "]" * 40), f":{at('q = 0.25,')}: nested deeper than 16 levels"),
    "tables in tables": (parameter("{a=" * 9_000 + "1" + "}" * 9_000), "nested too deeply"),
    "tables, somewhat": (parameter("{a=" * 40 + "1" + "}" * 40), "nested deeper than 16 levels"),
    "a dotted key": (FIRST + ".".join("a" * 50_000) + " = 1\n" + SHIPPED, ":2 has more than 100 dots"),
    "a dotted header": (SHIPPED + "\n[" + ".".join("a" * 50_000) + "]\n", "has more than 100 dots"),
    "many dotted keys": (
        SHIPPED + "".join(f"\n[x{n}.{'.'.join('a' * 90)}]" for n in range(1_200)),
        "has more than 10000 dots",
    ),
    "some dotted keys": (
        SHIPPED + "".join(f"\n[x{n}.{'.'.join('a' * 90)}]" for n in range(100)),
        "nested deeper than 16 levels",
    ),
    "a key twice": (put(GAIN, f"{GAIN}\n{GAIN}"), f":{at(GAIN) + 1} cannot be read: Cannot overwrite"),
    "a table twice": (SHIPPED + "\n[claim.R1]\n", "cannot be read: Cannot declare"),
    "a table and a dotted key": (SHIPPED + "\n[claim]\nR1.kill = 'x'\n", "cannot be read: Cannot"),
    "carriage returns": (SHIPPED.replace("\n", "\r\n"), ":1 has a carriage return: a seal covers bytes"),
    "one carriage return": (put(GAIN, f"{GAIN}\r"), f":{at(GAIN)} has a carriage return"),
    "a byte order mark": (b"\xef\xbb\xbf" + SHIPPED.encode(), ":1 begins with a byte order mark"),
    "a zero byte": (put("authors", "\0authors"), f":{at('authors')} has the control character U+0000"),
    "a bell in a comment": (put("# The four", "# \aThe four"), ":1 has the control character U+0007"),
    "not UTF-8": (SHIPPED.encode() + b"\n# \xff\n", "is not UTF-8"),
    "UTF-16": (SHIPPED.encode("utf-16"), "is not UTF-8"),
    "a word reversed": (put("The certificate", "The \u202ecertificate"), "U+202E (right-to-left override)"),
    "a word isolated": (put("The certificate", "The \u2066certificate"), "U+2066"),
    "a space of no width": (put("# The four", "# The\u200b four"), ":1 has the character U+200B (zero width"),
    "a reversing escape": (
        put("The certificate", r"The \u202ecertificate"),
        "U+202E (right-to-left override)",
    ),
    "a bell escaped": (put("The certificate", r"The \u0007certificate"), "control character U+0007"),
    "a claim in Cyrillic": (SHIPPED.replace("claim.R1", 'claim."\u0420\u0031"'), "U+0420", "names are ASCII"),
    "a reading in Cyrillic": (
        put('"main tasks only"', '"m\u0430in tasks only"'),
        "U+0430",
        "names are ASCII",
    ),
    "a task in Cyrillic": (put('"words", "facts"', '"w\u043erds", "facts"'), "tasks", "a name has letters"),
    "a suite that climbs": (
        put('suites = ["embedded-1k"]', 'suites = ["../x"]'),
        "a name has letters, digits",
    ),
    "a task that climbs": (put('["words", "facts"]', '["words", "../../x"]'), "a name has letters, digits"),
    "an arm that climbs": (put('arms = ["poisson"]', 'arms = ["/etc/x"]'), "claim R1: a name has letters"),
    "a parent that climbs": (put('id = "R"', 'id = "R"\nparent = "../R"'), "a name has letters, digits"),
    "a claim that climbs": (SHIPPED.replace("claim.R1", 'claim."../R1"'), "claim ../R1: an id is a capital"),
    "an id that climbs": (put('id = "R"', 'id = "../R"'), ":4: the id '../R' must be the file's name"),
    "an empty statement": (put('statement = "The', 'statement = " " # "The'), "claim R1: the text is empty"),
    "a kill of 100 kB": (kill("gain < 0 or " * 9_000 + "gain < 1"), "claim R3: kill '", "longer than 300"),
    "10,000 parentheses": (kill("(" * 10_000 + "gain" + ")" * 10_000 + " < 0"), "longer than 300 characters"),
    "many nots": (kill("not " * 30 + "gain < 0"), f":{at(GAIN)}: claim R3: kill 'not not", "deeper than 16"),
    "a huge number": (kill("gain < " + "9" * 290), "a number is larger than 1e+09"),
    "powers": (kill("gain < 9**9**9**9"), "'9 ** 9 ** 9 ** 9' is not a number or a quantity"),
    "products of large numbers": (kill("gain < " + "*".join(["999999999"] * 25)), "claim R3"),
    "digits of another script": (kill("gain < \u0661"), "it contains"),
    "letters of another script": (kill("g\u0430in < 0"), "it contains"),
    "a line break": (kill(r"gain <\n 0"), "it contains '\\n'"),
    "nan in a condition": (kill("gain < nan"), "'nan' is used but not declared"),
    "an overflow": (kill("gain < 1e999"), "a number is larger"),
    "nan for a number": (parameter("nan"), f":{at('q = 0.25,')}: claim.R4.parameters.q: nan is not a finite"),
    "infinity": (parameter("-inf"), "-inf is not a finite number"),
    "a date for a number": (parameter("2026-01-01"), "a date or time stands where none is asked for"),
    "a time for a range": (put("range = [-1, 1]", "range = [-1, 10:00:00]"), "a date or time stands"),
    "a date without offset": (
        put('id = "R"', 'id = "R"\nregistered_at = 2020-01-01T00:00:00'),
        ":5: Expected `datetime` with a timezone",
    ),
    "a number of 5,000 digits": (parameter("9" * 5_000), "cannot be read: Exceeds the limit"),
    "a line of 1 MB": (put("# The four", "# " + "x" * 2**20), "is longer than 262,144 bytes"),
    "many variants": (
        put("[claim.R4.sensitivity]\n", "[claim.R4.sensitivity]\n" + MANY),
        "has more than 400 claims, readings and sensitivities",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_registration_is_refused_at_once(tmp_path, case):
    text, *words = CASES[case]
    refused(written(tmp_path, text), *words)


@pytest.mark.parametrize("is_one_line", [True, False], ids=["one line", "many lines"])
def test_a_file_of_100_mb_is_refused_at_once(tmp_path, is_one_line):
    path = written(tmp_path, SHIPPED)
    with path.open("ab") as file:
        for _ in range(100):
            file.write(b"#" * 2**20 if is_one_line else b"# x\n" * 2**18)
    assert path.stat().st_size > 100 * 2**20
    refused(path, "is longer than 262,144 bytes")
    path.unlink()


def test_a_link_is_refused(tmp_path):
    written(tmp_path, SHIPPED).rename(tmp_path / "elsewhere")
    (tmp_path / "R.toml").symlink_to("elsewhere")
    refused(tmp_path / "R.toml", "is a link: put the file itself there")
    (tmp_path / "R.toml").unlink()
    (tmp_path / "R.toml").symlink_to("nowhere")
    refused(tmp_path / "R.toml", "is a link")


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "R.toml").mkdir()
    refused(tmp_path / "R.toml", "is not a regular file")


def test_the_shipped_registration_is_accepted(tmp_path):
    said, seconds, megabytes = loaded(written(tmp_path, SHIPPED))
    assert said is None
    assert seconds < SECONDS
    assert megabytes < MEGABYTES
