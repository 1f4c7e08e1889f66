"""What remains of the findings of several samples."""

from pullback.report import Finding, Report


def finding(*names, severity="warning", subject="Scale"):
    message = f"{subject} keeps {', '.join(names)} on ctx"
    return Finding("PB612", "hidden-residual", severity, "fail", subject, message, attachments={"about": list(names)})


def merged(*findings):
    return Report().merge(*(Report((f,)) for f in findings)).findings


def test_names_that_a_longer_list_holds_are_not_told_again():
    short, long = finding("x", "w"), finding("x", "w", "mask")
    assert merged(short, long) == (long,)
    assert merged(long, short) == (long,)


def test_what_others_hold_together_is_not_told_again():
    first, second, both = finding("x", "w", "s"), finding("x", "v"), finding("w", "v")
    assert merged(first, second, both) == (first, second)


def test_news_stay_and_so_do_other_subjects_and_severities():
    kept = finding("x"), finding("w"), finding("x", "w", severity="note"), finding("x", subject="Shift")
    assert merged(*kept) == kept


def test_findings_that_list_nothing_stay():
    plain = [Finding("PB501", "wrong-gradient", "error", "fail", "Scale", f"wrong at {place}") for place in "ab"]
    assert merged(*plain) == tuple(plain)
