"""What a row says about itself must agree with itself."""

from kvexp.records import SIGNALS, Generation


def contradiction(row: Generation) -> str:
    """The first contradiction inside a row, in words; empty if there is none."""
    steps = row.certificate_steps
    if (steps is None) != (row.certificate is None):
        return "certificate and certificate_steps are not there together"
    if steps is not None and not steps:
        return "certificate_steps is empty"
    if steps is not None and row.certificate != max(steps):
        return f"certificate {row.certificate} is not the largest of certificate_steps, {max(steps)}"
    absent = {name for name in SIGNALS if getattr(row, name) is None}
    if unexplained := sorted(absent - row.undefined.keys()):
        return f"{unexplained[0]} is null without a reason in undefined"
    if needless := sorted(row.undefined.keys() - absent):
        return f"undefined gives a reason for {needless[0]}, which is there or is no signal"
    return ""
