"""The public time-stamp authorities that kvexp ships, by the fingerprints of their roots (leaf: stdlib).

A seal covers this file. So an author can pin any root, but not make it count as a third party without a
change that everybody sees who compares this file with kvexp's own.
"""

from typing import Literal

Kind = Literal["self-run", "pinned", "public"]
# By the name of the file in preregistration/trust, what `openssl x509 -fingerprint -sha256` prints.
PUBLIC = {
    "digicert": "552f7bdcf1a7af9e6ce672017f4f12abf77240c78e761ac203d1d9d20ac89988",
    "globalsign": "2cabeafe37d06ca22aba7391c0033d25982952c453647349763a3ab5ad6ccf69",
    "identrust": "5d56499be4d2e08bcfcad08a3e38723d50503bde706948e42f55603019e528ae",
}
KINDS: dict[Kind, str] = {
    "self-run": "the author's word, by a self-run authority",
    "pinned": "the author's word: an authority pinned by this repository, not one that kvexp ships",
    "public": "a public authority, its root pinned",
}
TO_ADD = (
    "an authority that is public and not shipped counts once its root's fingerprint stands in PUBLIC of "
    "kvexp/prereg/authorities.py before the seal is made: a change of a sealed file, which a reviewer sees"
)


def is_public(root_sha256: str) -> bool:
    """Whether a root is one of those that kvexp ships."""
    return root_sha256 in PUBLIC.values()
