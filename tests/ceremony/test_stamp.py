"""Time stamps against a real authority (`openssl ts`): what verifies, what must not, what is kept."""

import os
import re
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rfc3161_client import decode_timestamp_response

from kvexp.ceremony import authorities, stamp
from kvexp.ceremony.authorities import CannotStamp, StampError, Trust
from kvexp.ceremony.stamp import Token, check, query
from kvexp.documents.anchor import inside
from kvexp.documents.forms import PUBLIC, grade_of
from kvexp.errors import KvexpError
from tests.ceremony import own_tsa
from tests.ceremony.own_tsa import Authority, Served, authority, edited, now, serving

ROOT = Path(__file__).resolve().parent.parent.parent
MESSAGE = b"0123  analysis/claims/r1.py\n"
STATUS = (0, 0, 0)  # reply > PKIStatusInfo > status


def moment(token: Token) -> datetime:
    """A token's time, for comparisons."""
    return datetime.fromisoformat(token.time)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
pytestmark = needs_openssl


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Authority:
    return authority(tmp_path_factory.mktemp("tsa"))


@pytest.fixture
def ship(monkeypatch):
    """A function that lets kvexp ship an authority; returns the fingerprint of its root."""

    def call(authority: Authority) -> str:
        root = authorities.fingerprint(authority.root.certificate)
        monkeypatch.setitem(PUBLIC, authority.name, root)
        return root

    return call


@pytest.fixture(scope="module")
def asked() -> bytes:
    return query(MESSAGE)


@pytest.fixture(scope="module")
def replied(own, asked) -> bytes:
    return own.answer(asked)


@pytest.fixture
def manifest(tmp_path) -> Path:
    path = tmp_path / "seals" / "R.sha256"
    path.parent.mkdir()
    path.write_bytes(MESSAGE)
    return path


def openssl(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = ["openssl", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def saved(path: Path, body: bytes) -> Path:
    path.write_bytes(body)
    return path


def rejected(own: Authority, tsq: bytes, tsr: bytes, *, message: bytes = MESSAGE, words: str) -> None:
    with pytest.raises(StampError, match=words) as caught:
        check(message, tsq, tsr, own.trust())
    assert caught.value.exit_code == 4


# What a token says -------------------------------------------------------------------------------


def test_a_token_says_when_and_who(own, asked, replied):
    token = check(MESSAGE, asked, replied, own.trust())
    assert abs((moment(token) - datetime.now(UTC)).total_seconds()) < 120
    assert (token.witness, token.trust, token.grade) == ("CN=test signer", "test", 1)
    assert token.root_sha256 == authorities.fingerprint(own.root.certificate)
    assert token.serial.bit_length() >= 120
    assert token.nonce == decode_timestamp_response(replied).tst_info.nonce


def recomputed(reply: Path) -> str:
    """The anchor as its docstring says: from openssl's text, by printf and sha256sum."""
    run = openssl("ts", "-reply", "-in", reply.name, "-text", folder=reply.parent)
    text = run.stdout
    rows = re.search(r"Message data:\n((?:    .*\n)+)", text)
    assert rows is not None, text
    imprint = "".join(re.findall(r"\b[0-9a-f]{2}\b", "".join(r[11:59] for r in rows[1].splitlines())))
    serial = int(re.search(r"Serial number: 0x([0-9A-F]+)", text)[1], 16)
    nonce = int(re.search(r"Nonce: 0x([0-9A-F]+)", text)[1], 16)
    month, day, clock, year = re.search(r"Time stamp: (\w+) +(\d+) ([\d:.]+) (\d+) GMT", text).groups()
    number = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split().index(month) + 1
    date = f"{year}-{number:02}-{int(day):02}"
    script = r"printf 'kvexp-anchor/1\n%s\n%s\n%s\n%s\n' " + f"{imprint} {serial} {date}T{clock}Z {nonce}"
    run = subprocess.run(["bash", "-c", f"{script} | sha256sum"], capture_output=True, text=True, check=True)
    return run.stdout.split()[0]


@pytest.mark.parametrize("digits", [0, 3])
def test_a_stranger_recomputes_the_anchor_with_openssl_and_sha256sum(
    own, asked, tmp_path, monkeypatch, digits
):
    config = authorities._CONFIG.replace("clock_precision_digits = 0", f"clock_precision_digits = {digits}")
    monkeypatch.setattr(authorities, "_CONFIG", config)
    tsr = own.answer(asked)
    token = check(MESSAGE, asked, tsr, own.trust())
    assert recomputed(saved(tmp_path / "R.tsr", tsr)) == token.anchor


def test_the_fraction_of_a_second_is_kept(own, asked, monkeypatch):
    """rfc3161-client drops it, and its loss would put another anchor beside what openssl prints."""
    config = authorities._CONFIG.replace("clock_precision_digits = 0", "clock_precision_digits = 6")
    monkeypatch.setattr(authorities, "_CONFIG", config)
    tokens = [check(MESSAGE, asked, own.answer(asked), own.trust()) for _ in range(4)]
    assert any(re.fullmatch(r"[\dT:-]{19}\.\d{1,6}Z", token.time) for token in tokens)
    assert [moment(token) for token in tokens] == sorted(moment(token) for token in tokens)
    assert any(moment(token).microsecond for token in tokens)


def test_queries_carry_a_fresh_nonce_and_ask_for_the_certificate(tmp_path):
    texts = []
    for number in range(20):
        path = saved(tmp_path / f"{number}.tsq", query(MESSAGE))
        texts.append(openssl("ts", "-query", "-in", path, "-text").stdout)
    nonces = {int(re.search(r"Nonce: 0x([0-9A-F]+)", text)[1], 16) for text in texts}
    assert len(nonces) == 20
    assert max(nonces) > 2**60
    assert all("Hash Algorithm: sha256" in t and "Certificate required: yes" in t for t in texts)
    with pytest.raises(CannotStamp, match="empty file"):
        query(b"")


def test_every_token_has_an_anchor_of_its_own(own, asked):
    tokens = [check(MESSAGE, asked, own.answer(asked), own.trust()) for _ in range(5)]
    assert len({token.anchor for token in tokens}) == len({token.serial for token in tokens}) == 5


def test_the_grade_of_several_tokens():
    def token(grade, root):
        kind = "public" if grade == 2 else "pinned"
        return Token("a" * 64, "2026-01-01T00:00:00Z", 1, 2, "CN=x", "x", root * 64, kind)

    assert grade_of([]) == 0
    assert grade_of([token(1, "a"), token(1, "b")]) == 1
    assert grade_of([token(1, "a"), token(2, "b")]) == 2
    assert grade_of([token(2, "b"), token(2, "b")]) == 2  # one authority twice
    assert grade_of([token(2, "a"), token(2, "b")]) == 3


# What must not verify ----------------------------------------------------------------------------


def test_other_data(own, asked, replied):
    rejected(own, asked, replied, message=b"another", words="the query asks about another file")


def test_a_reply_about_other_data_with_the_right_nonce(own, asked):
    """The imprint of the query is exchanged on its way to the authority, the nonce stays."""
    other = edited(query(b"other"), (0, 3), lambda _: der_value(asked, 0, 3))
    rejected(own, asked, own.answer(other), words="the token is about another file")


def der_value(body: bytes, *path: int) -> bytes:
    part = inside(body, *path[:-1])[path[-1]]
    return body[part.start : part.end]


def test_a_reply_to_an_older_query(own, asked, replied):
    rejected(own, query(MESSAGE), replied, words="answers another query")


def test_a_reply_without_a_nonce(own, asked, tmp_path):
    data, without = saved(tmp_path / "data", MESSAGE), tmp_path / "without.tsq"
    openssl("ts", "-query", "-data", data, "-sha256", "-cert", "-no_nonce", "-out", without)
    tsr = own.answer(without.read_bytes())
    rejected(own, asked, tsr, words="answers another query")
    rejected(own, without.read_bytes(), tsr, words="has no nonce")


def test_a_reply_without_the_certificate(own, tmp_path):
    data, without = saved(tmp_path / "data", MESSAGE), tmp_path / "without.tsq"
    openssl("ts", "-query", "-data", data, "-sha256", "-out", without)
    tsr = own.answer(without.read_bytes())
    rejected(own, without.read_bytes(), tsr, words="holds 0 certificates of its signer")


def test_another_hash(own, asked, tmp_path):
    data, longer = saved(tmp_path / "data", MESSAGE), tmp_path / "longer.tsq"
    openssl("ts", "-query", "-data", data, "-sha512", "-cert", "-out", longer)
    rejected(own, longer.read_bytes(), own.answer(asked), words="about another file")


def test_the_wrong_root(own, asked, replied, tmp_path):
    other = authority(tmp_path, "other")
    rejected(other, asked, replied, words=r"under a pinned root \(other: .*issuer certificate")


def test_a_root_of_the_same_name_with_another_key(own, asked, replied, tmp_path):
    impostor = authority(tmp_path, "test")
    assert impostor.root.certificate.subject == own.root.certificate.subject
    rejected(impostor, asked, replied, words="under a pinned root")


def test_no_root_at_all(asked, replied):
    with pytest.raises(CannotStamp, match="no time-stamp authority is pinned"):
        check(MESSAGE, asked, replied, {})


def test_the_first_root_that_verifies_names_the_authority(own, asked, replied, tmp_path):
    other = authority(tmp_path, "zother")
    trusts = {**other.trust(is_self_run=False), **own.trust()}
    assert check(MESSAGE, asked, replied, trusts).trust == "test"


def test_a_root_that_is_also_self_run_is_never_public(own, asked, replied, ship):
    ship(own)
    public = Trust("a-public", None, (own.root.certificate,), False)
    token = check(MESSAGE, asked, replied, {"a-public": public, **own.trust()})
    assert (token.trust, token.grade) == ("test", 1)


def test_an_expired_signer_that_was_valid_then_is_accepted(tmp_path, manifest):
    end = now() + timedelta(seconds=2)
    brief = authority(tmp_path / "tsa", above=own_tsa.root(end=end), end=end)
    trusts = brief.trust()
    stamp.write_query(manifest)
    token = stamp.store(manifest, brief.answer(stamp.stamp_paths(manifest).query.read_bytes()), trusts)
    assert moment(token) <= end
    while datetime.now(UTC) < end + timedelta(seconds=1):
        time.sleep(0.1)
    assert stamp.read_token(manifest, trusts) == token
    # openssl says the same, asked about the token's own time as the module's docstring does
    then = int(moment(token).timestamp())
    assert "has expired" in verified_by_openssl(manifest, brief).stderr
    assert "Verification: OK" in verified_by_openssl(manifest, brief, "-attime", then).stdout


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ({"end": now() - timedelta(minutes=1)}, "certificate has expired"),
        ({"start": now() + timedelta(hours=1)}, "certificate is not yet valid"),
    ],
)
def test_a_signer_that_was_not_valid_at_the_time(tmp_path, asked, dates, words):
    wrong = authority(tmp_path, **dates)
    rejected(wrong, asked, wrong.answer(asked), words=words)


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ({"end": now() - timedelta(minutes=1)}, "certificate has expired"),
        ({"start": now() + timedelta(hours=1)}, "certificate is not yet valid"),
    ],
)
def test_a_root_that_was_not_valid_at_the_time(tmp_path, asked, dates, words):
    wrong = authority(tmp_path, above=own_tsa.root(**dates))
    rejected(wrong, asked, wrong.answer(asked), words=words)


@pytest.mark.parametrize(
    ("usage", "critical"),
    [(None, True), (own_tsa.STAMPING, False), (own_tsa.SERVING, True)],
    ids=["none", "not critical", "another"],
)
def test_a_signer_that_is_no_time_stamper(own, asked, replied, usage, critical):
    """openssl would not sign with it, so it takes the place of a good certificate of the same key."""
    twin = own.issuer.issue(
        "test signer", own.key, usage=usage, critical=critical, serial=own.signer.serial_number
    )
    good = own_tsa.with_certificates(replied, own.signer)
    assert check(MESSAGE, asked, good, own.trust()).witness == "CN=test signer"
    spoiled = own_tsa.with_certificates(replied, twin)
    rejected(own, asked, spoiled, words=r"under a pinned root \(test: .*(purpose|EKU)")


def test_a_second_certificate_cannot_give_the_name(own, asked, replied):
    """One of the same issuer and serial number, signed by nobody, beside the one that signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    forger = own_tsa.Issuer(own.root.text, key, own.root.certificate)
    forged = forger.issue("DigiCert", key, usage=own_tsa.STAMPING, serial=own.signer.serial_number)
    for pair in ((own.signer, forged), (forged, own.signer)):
        spoiled = own_tsa.with_certificates(replied, *pair)
        rejected(own, asked, spoiled, words="holds 2 certificates of its signer")


def test_a_certificate_of_the_forger_alone(own, asked, replied):
    key = ec.generate_private_key(ec.SECP256R1())
    forger = own_tsa.Issuer(own.root.text, key, own.root.certificate)
    forged = forger.issue("DigiCert", key, usage=own_tsa.STAMPING, serial=own.signer.serial_number)
    rejected(own, asked, own_tsa.with_certificates(replied, forged), words="under a pinned root")


def test_only_granted_counts(own, asked, replied):
    for status, words in ((1, "granted with mods"), (3, "waiting"), (4, "revocation warning"), (77, "77")):
        changed = edited(replied, STATUS, lambda _, status=status: bytes([2, 1, status]))
        rejected(own, asked, changed, words=f"the authority answers '{words}'")


def test_a_rejection_in_the_authoritys_words(own, asked, tmp_path):
    data, longer = saved(tmp_path / "data", MESSAGE), tmp_path / "longer.tsq"
    openssl("ts", "-query", "-data", data, "-sha512", "-cert", "-out", longer)
    refused = own.answer(longer.read_bytes())
    rejected(own, asked, refused, words=r"answers 'rejection' \(Message digest algorithm is not supported")


def test_what_an_authority_says_cannot_move_the_cursor(own, asked, tmp_path):
    text = own_tsa.wrapped(0x30, own_tsa.wrapped(0x0C, "\x1b[2Jfine\u202e".encode()))
    reply = own_tsa.wrapped(0x30, own_tsa.wrapped(0x30, b"\x02\x01\x02" + text))
    with pytest.raises(StampError) as caught:
        check(MESSAGE, asked, reply, own.trust())
    assert r"\x1b[2Jfine\u202e" in str(caught.value)


@pytest.mark.parametrize("junk", [b"", b"0", b"<html><body>login</body></html>", b"\x30\x80\x00\x00"])
def test_what_is_no_reply(own, asked, junk):
    rejected(own, asked, junk, words="is no time stamp that can be read")
    rejected(own, junk, asked, words="the query cannot be read")


def test_a_reply_that_is_too_long(own, asked, replied):
    rejected(own, asked, replied + bytes(authorities.MAX_REPLY), words="are the most")


def test_every_truncation(own, asked, replied, capfd):
    for size in range(len(replied)):
        with pytest.raises(StampError):
            check(MESSAGE, asked, replied[:size], own.trust())
    with pytest.raises(StampError):
        check(MESSAGE, asked, replied + b"\x00", own.trust())
    assert "panicked" not in capfd.readouterr().err


def survivors(own: Authority, asked: bytes, replied: bytes, masks: tuple[int, ...]) -> Iterator[int]:
    """Where a flip leaves a token that verifies, which must then say the same."""
    said = check(MESSAGE, asked, replied, own.trust())
    for place in range(len(replied)):
        for mask in masks:
            flipped = bytearray(replied)
            flipped[place] ^= mask
            try:
                token = check(MESSAGE, asked, bytes(flipped), own.trust())
            except StampError:
                continue
            assert token == said, f"byte {place} ^ {mask:#x}"
            yield place


@pytest.mark.parametrize("masks", [(0x01,), (0x02, 0x80), (0x20, 0xFF)], ids=["low", "others", "case"])
def test_every_byte_flipped_is_rejected_or_changes_nothing(own, asked, replied, masks):
    found = list(survivors(own, asked, replied, masks))
    assert len(found) < 0.03 * len(replied) * len(masks)


def test_every_byte_of_the_query_flipped(own, asked, replied):
    said = check(MESSAGE, asked, replied, own.trust())
    for place in range(len(asked)):
        flipped = bytearray(asked)
        flipped[place] ^= 1
        try:
            assert check(MESSAGE, bytes(flipped), replied, own.trust()) == said
        except StampError:
            continue


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=400))
def test_random_bytes_are_an_error_and_nothing_else(own, asked, replied, junk):
    for tsq, tsr in ((asked, junk), (junk, replied)):
        with pytest.raises(StampError):
            check(MESSAGE, tsq, tsr, own.trust())


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 2000), cut=st.integers(0, 30), junk=st.binary(max_size=30))
def test_a_token_with_a_piece_exchanged(own, asked, replied, place, cut, junk):
    spoiled = replied[:place] + junk + replied[place + cut :]
    try:
        token = check(MESSAGE, asked, spoiled, own.trust())
    except StampError:
        return
    assert token == check(MESSAGE, asked, replied, own.trust())


def test_an_interrupt_is_no_bad_token(own, asked, replied, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stamp, "decode_timestamp_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check(MESSAGE, asked, replied, own.trust())


# Certificates in another order -------------------------------------------------------------------


def test_a_chain_from_leaf_to_root_as_digicert_sends_it(tmp_path, manifest):
    top, key = own_tsa.root(), ec.generate_private_key(ec.SECP256R1())
    for _ in range(20):  # DER sorts by bytes: find a pair that is the wrong way round
        middle = own_tsa.Issuer("middle", key, top.issue("middle", key, is_ca=True))
        chained = authority(tmp_path / f"tsa-{time.monotonic_ns()}", above=middle)
        pair = (chained.signer, middle.certificate)
        if pair[0].public_bytes(Encoding.DER) > pair[1].public_bytes(Encoding.DER):
            break
    else:
        pair = pair[::-1]
    chained.root = top
    tsq = stamp.write_query(manifest).read_bytes()
    tsr = own_tsa.with_certificates(chained.answer(tsq), *pair)
    with pytest.raises(ValueError, match="InvalidSetOrdering"):
        decode_timestamp_response(tsr)
    token = stamp.store(manifest, tsr, chained.trust())
    assert token.witness == "CN=test signer"
    assert stamp.stamp_paths(manifest).reply.read_bytes() == tsr  # as it came
    assert "Verification: OK" in verified_by_openssl(manifest, chained).stdout


# Files -------------------------------------------------------------------------------------------


def verified_by_openssl(manifest: Path, own: Authority, *more: object) -> subprocess.CompletedProcess[str]:
    """The line that README gives to a stranger."""
    pem = saved(manifest.with_name("root.pem"), own.root.certificate.public_bytes(Encoding.PEM))
    reply = stamp.stamp_paths(manifest).reply
    return openssl("ts", "-verify", "-data", manifest, "-in", reply, "-CAfile", pem, *more)


def stamped(manifest: Path, own: Authority, witness: str | None = None) -> Token:
    tsq = stamp.write_query(manifest, witness).read_bytes()
    return stamp.store(manifest, own.answer(tsq), own.trust(), witness)


def test_openssl_accepts_what_is_stored(own, manifest):
    token = stamped(manifest, own)
    assert "Verification: OK" in verified_by_openssl(manifest, own).stdout
    assert stamp.read_token(manifest, own.trust()) == token
    assert sorted(path.name for path in manifest.parent.iterdir()) == [
        "R.sha256",
        "R.tsq",
        "R.tsr",
        "root.pem",
    ]


def test_without_a_reply_there_is_no_token(own, manifest):
    assert stamp.read_token(manifest, own.trust()) is None
    stamp.write_query(manifest)
    assert stamp.read_tokens(manifest, own.trust()) == []


def test_a_changed_manifest_breaks_its_token(own, manifest):
    stamped(manifest, own)
    manifest.write_bytes(MESSAGE + b"more")
    with pytest.raises(StampError, match=r"R\.tsr: the query asks about another file"):
        stamp.read_token(manifest, own.trust())
    with pytest.raises(CannotStamp, match="restore that one"):
        stamp.write_query(manifest)


def test_a_query_on_its_way_is_not_replaced(own, manifest):
    first = stamp.write_query(manifest).read_bytes()
    assert stamp.write_query(manifest).read_bytes() == first
    manifest.write_bytes(b"sealed again\n")
    assert stamp.write_query(manifest).read_bytes() != first
    with pytest.raises(StampError, match="another file"):
        stamp.store(manifest, own.answer(first), own.trust())


def test_a_valid_token_is_never_replaced(own, manifest):
    first = stamped(manifest, own)
    body = stamp.stamp_paths(manifest).reply.read_bytes()
    with pytest.raises(CannotStamp, match="is there already") as caught:
        stamped(manifest, own)
    assert caught.value.exit_code == 2
    assert stamp.stamp_paths(manifest).reply.read_bytes() == body
    assert stamp.store(manifest, body, own.trust()) == first  # the same once more is no error


def test_another_spelling_of_the_same_token_replaces_nothing(own, manifest):
    """No signature covers every byte, so two files may hold one token: the first one stays."""
    first = stamped(manifest, own)
    paths = stamp.stamp_paths(manifest)
    body = paths.reply.read_bytes()
    other = bytearray(body)
    other[next(survivors(own, paths.query.read_bytes(), body, (1,)))] ^= 1
    assert stamp.store(manifest, bytes(other), own.trust()) == first
    assert paths.reply.read_bytes() == body


def test_a_file_of_100_megabytes_is_not_read(own, manifest):
    stamped(manifest, own)
    os.truncate(stamp.stamp_paths(manifest).reply, 100 << 20)
    start = time.monotonic()
    with pytest.raises(KvexpError, match=r"R\.tsr cannot be read: it is longer than 262,144 bytes"):
        stamp.read_token(manifest, own.trust())
    assert time.monotonic() - start < 10


def test_a_damaged_token_may_be_replaced(own, manifest):
    stamped(manifest, own)
    reply = stamp.stamp_paths(manifest).reply
    reply.write_bytes(reply.read_bytes()[:-1])
    with pytest.raises(StampError, match=r"R\.tsr"):
        stamp.read_token(manifest, own.trust())
    assert stamped(manifest, own) == stamp.read_token(manifest, own.trust())


def test_a_bad_reply_leaves_no_file(own, manifest):
    stamp.write_query(manifest)
    with pytest.raises(StampError):
        stamp.store(manifest, own.answer(query(MESSAGE)), own.trust())
    assert sorted(path.name for path in manifest.parent.iterdir()) == ["R.sha256", "R.tsq"]


def test_a_reply_without_its_query(own, manifest):
    with pytest.raises(CannotStamp, match="write a query with --query"):
        stamp.store(manifest, b"", own.trust())
    stamped(manifest, own)
    stamp.stamp_paths(manifest).query.unlink()
    with pytest.raises(StampError, match=r"has no query R\.tsq beside it"):
        stamp.read_token(manifest, own.trust())
    with pytest.raises(CannotStamp, match="restore that one"):
        stamp.write_query(manifest)


def test_a_link_is_no_token(own, manifest, tmp_path):
    stamped(manifest, own)
    reply = stamp.stamp_paths(manifest).reply
    reply.rename(tmp_path / "elsewhere")
    reply.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KvexpError, match="is a link: put the file itself there"):
        stamp.read_token(manifest, own.trust())


def test_further_witnesses(own, manifest, tmp_path, ship):
    other = authority(tmp_path / "other", "other")
    ship(own)
    ship(other)
    trusts = {**own.trust(is_self_run=False), **other.trust(is_self_run=False)}
    first, second = stamped(manifest, own), stamped(manifest, other, "other")
    assert stamp.stamp_paths(manifest, "other").reply.name == "R.other.tsr"
    tokens = stamp.read_tokens(manifest, trusts)
    assert [token.anchor for token in tokens] == [first.anchor, second.anchor]
    assert grade_of(tokens) == 3
    with pytest.raises(CannotStamp, match="no authority 'third' is pinned"):
        stamped(manifest, own, "third")
    with pytest.raises(CannotStamp, match=r"R\.other\.tsr: no authority 'other' is pinned"):
        stamp.read_tokens(manifest, own.trust())


def test_a_witness_must_be_the_one_that_the_file_names(own, manifest, tmp_path):
    other = authority(tmp_path / "other", "other")
    tsq = stamp.write_query(manifest, "other").read_bytes()
    with pytest.raises(StampError, match="under a pinned root"):
        stamp.store(manifest, own.answer(tsq), {**own.trust(), **other.trust()}, "other")


def test_the_stamp_of_another_manifest_is_no_witness(own, manifest):
    """A lock of suite `R.more` lies beside that of suite `R`."""
    longer = manifest.with_name("R.more.sha256")
    longer.write_bytes(b"another manifest\n")
    first = stamped(manifest, own)
    stamped(longer, own)
    assert stamp.read_tokens(manifest, own.trust()) == [first]


# Trust -------------------------------------------------------------------------------------------


def test_the_shipped_authorities_are_independent_and_honest():
    trusts = authorities.load_trust(ROOT, ROOT / "preregistration" / "nowhere")
    public = [trust for trust in trusts.values() if not trust.is_self_run]
    assert len(public) >= 2
    known = {trust.name: authorities.fingerprint(root) for trust in public for root in trust.roots}
    assert known == PUBLIC
    assert len({authorities.fingerprint(root) for trust in public for root in trust.roots}) == len(public)
    for trust in public:
        text = (ROOT / "preregistration/trust" / f"{trust.name}.toml").read_text()
        assert "Not tried" in text
        pem = (ROOT / "preregistration/trust" / f"{trust.name}.pem").read_text()
        (certificate,) = trust.roots
        assert f"# sha256: {authorities.fingerprint(certificate)}\n" in pem
        assert f"# subject: {certificate.subject.rfc4514_string()}\n" in pem


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # of a root that is not ours
@pytest.mark.parametrize("name", ["digicert", "globalsign", "identrust"])
def test_a_shipped_root_is_the_one_of_the_system(name):
    """Where the system has Mozilla's list, ours must be in it."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if not bundle.is_file():
        pytest.skip("no list of certificates on this system")
    known = {authorities.fingerprint(c) for c in x509.load_pem_x509_certificates(bundle.read_bytes())}
    (root,) = authorities.read_trust(ROOT / "preregistration" / "trust")[name].roots
    assert authorities.fingerprint(root) in known


GOOD = 'format = "kvexp-trust/1"\nname = "mine"\nroot = "mine.pem"\nself_run = false\nnote = "n"\n'


@pytest.fixture
def pinned(tmp_path, own) -> Path:
    folder = tmp_path / "preregistration" / "trust"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(GOOD)
    (folder / "mine.pem").write_bytes(own.root.certificate.public_bytes(Encoding.PEM))
    return folder


def test_below_home_everything_is_self_run(tmp_path, pinned, own, ship):
    root = ship(own)
    assert authorities.load_trust(tmp_path, tmp_path / "no")["mine"].kind(root) == "public"
    home = tmp_path / "home"
    home.mkdir()
    pinned.rename(home / "trust")
    assert authorities.load_trust(tmp_path, home)["mine"].kind(root) == "self-run"


def test_a_root_that_kvexp_does_not_ship_is_the_authors_word(tmp_path, pinned, own, asked, replied, ship):
    """Whoever pins a root of his own in preregistration/trust gains nothing by calling it public."""
    trusts = authorities.load_trust(tmp_path, tmp_path / "no")
    token = check(MESSAGE, asked, replied, trusts)
    assert (token.trust, token.kind, token.grade) == ("mine", "pinned", 1)
    ship(own)
    assert check(MESSAGE, asked, replied, trusts).grade == 2


def test_two_authorities_of_one_name(tmp_path, pinned):
    shutil.copytree(pinned, tmp_path / "home" / "trust")
    with pytest.raises(CannotStamp, match="give this one another"):
        authorities.load_trust(tmp_path, tmp_path / "home")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + 'trusted = "very"\n', "unknown field `trusted`"),
        (GOOD.replace('note = "n"\n', ""), "missing required field `note`"),
        (GOOD.replace("/1", "/2"), "cannot be used"),
        (GOOD.replace("false", '"no"'), "cannot be used"),
        (GOOD.replace('"mine"', '"yours"'), "name must be 'mine'"),
        (GOOD.replace('"mine.pem"', '"../mine.pem"'), "root 'mine.pem'"),
        (GOOD + "self_run = true\n", "cannot be used"),
        (GOOD + 'url = "ftp://host/x"\n', "no address of an authority"),
        (GOOD + 'url = "file:///etc/passwd"\n', "no address of an authority"),
        (GOOD + 'url = "http://user:secret@host/"\n', "no address of an authority"),
        (GOOD + 'url = "http://host/a b"\n', "no address of an authority"),
        (GOOD + 'url = "http://host:99999/"\n', "no address of an authority"),
        (GOOD + 'url = "http://"\n', "no address of an authority"),
        (GOOD + "#" + "x" * 20_000, "longer than"),
        ("\x00", "cannot be used"),
        ("a" + ".a" * 3_000 + " = 1", "cannot be used"),
    ],
)
def test_a_trust_file_that_cannot_be_used(pinned, text, words):
    (pinned / "mine.toml").write_text(text)
    start = time.monotonic()
    with pytest.raises(KvexpError, match=words):
        authorities.read_trust(pinned)
    assert time.monotonic() - start < 10


def test_only_a_root_can_be_pinned(pinned, own):
    for body in (own.signer.public_bytes(Encoding.PEM), b"", b"-----BEGIN CERTIFICATE-----\n"):
        (pinned / "mine.pem").write_bytes(body)
        with pytest.raises(CannotStamp, match="no root certificate that signs itself"):
            authorities.read_trust(pinned)
    (pinned / "mine.pem").write_bytes(own.root.certificate.public_bytes(Encoding.PEM) * 5)
    with pytest.raises(CannotStamp, match="4 are the most"):
        authorities.read_trust(pinned)
    (pinned / "mine.pem").unlink()
    with pytest.raises(KvexpError, match=r"mine\.pem cannot be read"):
        authorities.read_trust(pinned)


# HTTP --------------------------------------------------------------------------------------------


def test_a_round_trip_over_http(own, manifest):
    with serving(lambda tsq: Served(own.answer(tsq))) as address:
        tsq = stamp.write_query(manifest).read_bytes()
        token = stamp.store(manifest, authorities.post(address.url, tsq), own.trust())
    assert address.asked == [("POST", "application/timestamp-query", tsq)]
    assert stamp.read_token(manifest, own.trust()) == token


def no_answer(url: str, words: str, **limits: float) -> None:
    with pytest.raises(CannotStamp, match=words) as caught:
        authorities.post(url, b"query", **limits)
    assert caught.value.exit_code == 2
    assert "write the query with --query, post it from a machine with network" in str(caught.value)


def test_a_page_instead_of_a_time_stamp():
    with serving(lambda _: Served(b"<html>login</html>", kind="text/html; charset=utf-8")) as address:
        no_answer(address.url, "it sent text/html, no time stamp")


def test_a_hundred_megabytes(own):
    sent = []

    def flood() -> Iterator[bytes]:
        for _ in range(1600):
            sent.append(1 << 16)
            yield bytes(1 << 16)

    for length in (None, 100 << 20):
        with serving(lambda _, length=length: Served(flood(), length=length)) as address:
            no_answer(address.url, "it sent more than 262,144 bytes")
    assert sum(sent) < 32 << 20


def test_a_reply_that_is_cut_off():
    with serving(lambda _: Served(b"0123", length=400)) as address:
        no_answer(address.url, "cut off|IncompleteRead")


def test_an_authority_that_never_ends():
    stop = threading.Event()

    def drops() -> Iterator[bytes]:
        for _ in range(200):
            if stop.wait(0.05):
                return
            yield b"0"

    with serving(lambda _: Served(drops())) as address:
        start = time.monotonic()
        no_answer(address.url, "took too long", silence=1, total=0.5)
        assert time.monotonic() - start < 9
        stop.set()


def test_an_authority_that_is_silent():
    stop = threading.Event()

    def wait(_: bytes) -> Served:
        stop.wait(5)
        return Served(b"")

    with serving(wait) as address:
        no_answer(address.url, "timed out", silence=0.2)
        stop.set()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirection_is_followed(status, tmp_path):
    secret = saved(tmp_path / "secret", b"secret")
    with serving(lambda _: Served(b"")) as other:
        for target in (other.url, secret.as_uri()):
            headers = {"Location": target}
            with serving(lambda _, h=headers: Served(b"", status=status, headers=h)) as address:
                no_answer(address.url, f"{status} .*it names another address: {re.escape(target)}")
    assert other.asked == []


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_an_error_of_the_authority(status):
    with serving(lambda _: Served(b"no", status=status)) as address:
        no_answer(address.url, f"{status} ")


def test_nobody_there():
    with serving(lambda _: Served(b"")) as address:
        pass
    no_answer(address.url, "refused")
    no_answer("http://host.invalid/tsa", "host.invalid")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://h/x", "data:,x", "http:///x", "http://h/\r\nX: y"]
)
def test_no_other_scheme(url):
    with pytest.raises(CannotStamp, match="no address of an authority"):
        authorities.post(url, b"")


# The authority of one's own ----------------------------------------------------------------------


def test_a_self_run_authority_stamps_and_is_grade_1(tmp_path, manifest):
    home = tmp_path / "home"
    authorities.create(tmp_path / "tsa", home)
    trusts = authorities.load_trust(ROOT, home)
    assert trusts["own"].is_self_run
    tsq = stamp.write_query(manifest).read_bytes()
    token = stamp.store(manifest, authorities.answer(tmp_path / "tsa", tsq), trusts)
    assert (token.trust, token.grade) == ("own", 1)
    reply, pem = stamp.stamp_paths(manifest).reply, home / "trust" / "own.pem"
    run = openssl("ts", "-verify", "-data", manifest, "-in", reply, "-CAfile", pem)
    assert "Verification: OK" in run.stdout
    assert sorted(path.name for path in (home / "trust").iterdir()) == ["own.pem", "own.toml"]


def test_the_key_is_its_owners_alone_and_never_beside_the_root(tmp_path):
    before = os.umask(0)
    try:
        authorities.create(tmp_path / "tsa", tmp_path / "home")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tsa" / authorities.KEY).stat().st_mode) == 0o600
    texts = [
        path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.name != authorities.KEY
    ]
    assert not any("PRIVATE" in text or str(tmp_path) in text for text in texts)


def test_an_authority_is_never_replaced(tmp_path):
    authorities.create(tmp_path / "tsa", tmp_path / "home")
    with pytest.raises(CannotStamp, match="is there already"):
        authorities.create(tmp_path / "tsa", tmp_path / "home-2")
    with pytest.raises(CannotStamp, match="is there already"):
        authorities.create(tmp_path / "tsa-2", tmp_path / "home")


def test_without_openssl_it_says_so(own, asked, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CannotStamp, match="openssl is not on the PATH: install it"):
        own.answer(asked)


def test_without_a_key_it_says_so(asked, tmp_path):
    with pytest.raises(CannotStamp, match="no self-run authority in that folder"):
        authorities.answer(tmp_path, asked)


def test_a_query_that_is_none_is_rejected(own, asked):
    rejected(own, asked, own.answer(b"junk"), words="answers 'rejection'")
