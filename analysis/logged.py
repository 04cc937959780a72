"""Which signals are owed for an arm: where it never has one nothing is missing."""

import pandas as pd

from kvexp.prereg.registration import Details as Wanted

CERTIFICATE = "certificate"
OF_EVERY_ANSWER = frozenset({"entropy", "output_logprob"})  # whatever the arm (kvexp/records.py)


def has_signal(table: pd.DataFrame, wanted: Wanted, arm: str, signal: str) -> bool:
    """Whether numbers of a signal are owed for an arm: undefined ones must show, with their reason.

    Args:
        table: of the whole study, all suites: an arm that has no value in any of its answers has no such
            signal. One without answers may have it.
        wanted: the registration's; the certificate of its arm is owed even if no answer has one.
        arm: name.
        signal: name.
    """
    if signal in OF_EVERY_ANSWER or (arm, signal) == (wanted.arm, CERTIFICATE):
        return True
    answers = table.loc[(table["arm"] == arm) & table["present"], signal]
    return not len(answers) or bool(answers.notna().any())
