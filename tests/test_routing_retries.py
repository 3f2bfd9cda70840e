"""The retry budget."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.retries import Budget, RetryRules, deposit, full, take


def test_the_budget_starts_with_the_whole_reserve() -> None:
    budget: Budget | None = full(RetryRules())
    for _ in range(10):
        assert budget is not None
        budget = take(RetryRules(), budget)
    assert budget is not None
    assert take(RetryRules(), budget) is None


def test_ten_requests_earn_one_retry() -> None:
    budget = Budget(0.0)
    for _ in range(9):
        budget = deposit(RetryRules(), budget)
    assert take(RetryRules(), budget) is None
    assert take(RetryRules(), deposit(RetryRules(), budget)) == Budget(0.0)


def test_calm_saves_up_no_more_than_the_reserve() -> None:
    budget = full(RetryRules())
    assert deposit(RetryRules(), budget) is budget
    assert deposit(RetryRules(), Budget(9.95)) == budget


def test_a_reserve_lowered_by_a_reload_counts_at_once() -> None:
    assert take(RetryRules(reserve=0.0), full(RetryRules())) is None
    assert take(RetryRules(reserve=2.0), full(RetryRules())) == Budget(1.0)
    assert deposit(RetryRules(reserve=2.0), full(RetryRules())) == Budget(2.0)


@given(st.floats(0, 1), st.integers(0, 20), st.lists(st.booleans(), max_size=300))
def test_retries_never_exceed_the_reserve_and_their_share_of_requests(
    ratio: float, reserve: int, retried: list[bool]
) -> None:
    rules = RetryRules(ratio, float(reserve))
    budget, taken = full(rules), 0
    for requests, retry in enumerate(retried, start=1):
        budget = deposit(rules, budget)
        after = take(rules, budget) if retry else None
        if after is not None:
            budget, taken = after, taken + 1
        assert taken <= reserve + ratio * requests + 1e-6
        assert 0 <= budget.left <= reserve
