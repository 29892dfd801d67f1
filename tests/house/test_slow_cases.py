"""What `slow_cases.txt` leaves to the slow tests is a case among others, never a test as a whole."""

import pathlib

LISTED = (pathlib.Path(__file__).parents[1] / "slow_cases.txt").read_text().splitlines()


def of(test: str) -> str:
    return test.split("[")[0]


def test_of_every_test_a_case_runs_by_default(quick):
    files = {test.split("::")[0] for test in quick}
    here = [test for test in LISTED if test.split("::")[0] in files]
    assert not [test for test in here if test not in quick], "these are no tests any more"
    kept = {of(test) for test, runs in quick.items() if runs}
    assert not {of(test) for test in here} - kept, "all of their cases are slow"


def test_the_list_is_sorted_and_says_nothing_twice():
    assert sorted(set(LISTED)) == LISTED
