"""A proof of the policies goes on from what is kept, stops when its time is over, and leaves alone what is by hand."""

from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

from simulate.by_hand import BY_HAND, write
from simulate.contests import Contest, Score
from simulate.prove_policies import Kept, Pool
from simulate.verdicts import hardest

CONTESTS = [Contest("seed", "shared", load / 10, "poisson", 1) for load in range(1, 9)]


def score(contest: Contest, above: float = 0.0) -> Score:
    """By the policy so much more than by the better engine, which takes a second at each tenth of load."""
    return Score({"consolidate": 10 * contest.load * (1 + above), "only_speculative": 10 * contest.load}, 0.0, 1.0)


def test_what_is_kept_is_not_run_again_and_what_there_is_no_time_for_is_told(tmp_path: Path) -> None:
    ran: list[Contest] = []

    def held(contest: Contest, _requests: int) -> Score:
        ran.append(contest)
        return score(contest)

    with ThreadPoolExecutor(1) as workers:
        for until_s, asked, missing in (
            (inf, CONTESTS[:3], []),
            (-inf, CONTESTS, ["5 of 8 of the part library"]),
            (inf, CONTESTS, []),
        ):
            kept = Kept(tmp_path / "runs.jsonl", until_s)
            kept.all(Pool(workers, 1), "library", held, asked, 1500)
            assert kept.missing == missing
    assert ran == CONTESTS, "each once, in their order"
    assert kept.scores(Contest, Score) == {each: score(each) for each in CONTESTS}


def test_the_hardest_cells_are_those_that_are_so_over_all_their_seeds() -> None:
    lucky, hard = CONTESTS[0], CONTESTS[1]
    seen = {lucky: score(lucky, 0.5), lucky._replace(seed=2): score(lucky, -0.4)}
    seen |= {hard: score(hard, 0.1), hard._replace(seed=2): score(hard, 0.1)}
    seen = {each: found._replace(mean_s=found.mean_s | {"only_baseline": 99.0}) for each, found in seen.items()}
    assert hardest(seen, 1) == [hard]


def test_tables_made_anew_leave_alone_what_is_by_hand(tmp_path: Path) -> None:
    page = tmp_path / "policies.md"
    write(page, "# Tables\n")
    assert page.read_text() == "# Tables\n"
    page.write_text(f"# Tables\n\n{BY_HAND}\n\nFor a reason.\n")
    write(page, "# Newer tables\n")
    assert page.read_text() == f"# Newer tables\n\n{BY_HAND}\n\nFor a reason.\n"
