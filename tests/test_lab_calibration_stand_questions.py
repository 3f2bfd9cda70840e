"""Prompts as long as asked, the same on every machine, and warm or cold by how they begin."""

from itertools import pairwise

import pytest

from proxy.lab.calibration.stand.material import material
from proxy.lab.calibration.stand.questions import MATERIALS, PROMPTS, characters, probe, prompt_tokens, question
from proxy.lab.calibration.values import Condition, Prefix
from proxy.lab.prompts import PromptKind, choose

LONG = Condition(context_tokens=8000, max_tokens=200)
COLD = LONG._replace(prefix=Prefix.COLD)


@pytest.mark.parametrize("kind", list(PromptKind))
@pytest.mark.parametrize("chars_per_token", [3.0, 4.4])
def test_a_prompt_is_as_long_as_its_context_wants(kind: PromptKind, chars_per_token: float) -> None:
    for index in range(3):
        got = question(LONG._replace(prompts=kind), index, chars_per_token)
        assert characters(got) == pytest.approx(7900 * chars_per_token, abs=3)


def test_half_an_answer_lies_before_its_mean_moment() -> None:
    assert prompt_tokens(LONG) == 7900
    assert prompt_tokens(Condition(context_tokens=100, max_tokens=256)) == 1


def test_a_conversation_that_is_longer_than_wanted_stays_whole() -> None:
    assert question(Condition(10, max_tokens=4), 3, 4.0) == choose(PromptKind.MIXED, 1, 3)


def test_the_question_itself_stands_at_the_end() -> None:
    got, natural = question(LONG, 5, 4.0), choose(PromptKind.MIXED, 1, 5)
    assert got[1:] == natural[1:]
    assert got[0]["content"].endswith(natural[0]["content"])


def test_warm_prompts_come_again_and_share_what_they_begin_with() -> None:
    texts = [question(LONG, index, 4.0)[0]["content"] for index in range(2 * PROMPTS)]
    assert texts[:PROMPTS] == texts[PROMPTS:]
    assert len({text[:1000] for text in texts}) == MATERIALS
    most = round(0.9 * len(texts[0]))
    assert texts[0][:most] == texts[MATERIALS][:most]


def test_cold_prompts_share_no_beginning() -> None:
    begun = [question(COLD, index, 4.0, "ab12")[0]["content"][:20] for index in range(100)]
    assert len(set(begun)) == 100
    assert begun[3].startswith("Ticket ab12-3.")


def test_probes_are_one_text_that_no_cache_knows_the_beginning_of() -> None:
    probes = [probe(PromptKind.MIXED, 1000, *each) for each in ((0, "ab12"), (1, "ab12"), (0, "cd34"))]
    texts = [one[0]["content"] for one in probes]
    assert len({text[:20] for text in texts}) == 3
    assert len({text.partition("\n")[2] for text in texts}) == 1


def test_materials_differ_from_each_other_and_from_themselves_further_on() -> None:
    one, other = material(PromptKind.CODING, 0, 60_000), material(PromptKind.CODING, 1, 60_000)
    assert len(one) == len(other) == 60_000
    assert one != other
    files = [part for part in one.split("=== ")[1:-1] if "(revision" in part]
    assert len(files) > 20
    bodies = [part.partition("\n")[2] for part in files]
    assert len(set(bodies)) > 0.8 * len(bodies), "the same text came again word for word"


def test_a_longer_material_begins_as_the_shorter_one() -> None:
    sizes = [material(PromptKind.AGENTIC, 2, size) for size in (100, 5000, 50_000)]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(sizes))
