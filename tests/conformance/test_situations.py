"""The rows of the table as the suite states them agree with the decision, in every situation that is built."""

import pytest
from tenure import decision
from tenure_conformance.situations import OUTCOMES, ROWS, by_row, fitting_rows, simulate, varied


@pytest.mark.parametrize("seed", range(4))
def test_both_statements_of_the_rows_agree(seed):
    for row, situations in by_row(seed).items():
        for situation in situations[:150]:
            state, now = simulate(situation)
            answer = decision.claim(state, situation.claim(now), now)[1]
            assert fitting_rows(state, situation.claim(now), now)[0] == row
            assert answer.outcome == OUTCOMES[row], situation


@pytest.mark.parametrize("seed", range(4))
def test_every_row_has_situations_in_which_later_rows_fit_too(seed):
    alone = {1, 3, 7, 8, 13, 14}  # of what comes later nothing speaks of such a run, or the last row alone
    for row, situations in by_row(seed).items():
        assert len(situations) >= 20, row
        fitting = {fitting_rows(state, one.claim(now), now) for one in situations for state, now in [simulate(one)]}
        assert row in alone or len(fitting) > 1, (row, fitting)


def test_few_situations_are_still_varied():
    situations = by_row(1)[3]
    some = varied(situations, 24)
    assert len(some) == 24
    assert len({(one.older, one.newer) for one in some}) > 8


def test_all_rows_are_stated():
    assert list(ROWS) == list(range(1, 15))
    assert ROWS.keys() == OUTCOMES.keys()
