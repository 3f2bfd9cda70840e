"""What all sections share: a section left empty is one left out, and an unknown key is refused."""

import pytest

from proxy.config.sections import Section


class Some(Section):
    """A section."""

    some_s: float = 2.0


def test_a_section_whose_keys_are_all_commented_out_means_its_defaults() -> None:
    assert Some.model_validate(None) == Some()


@pytest.mark.parametrize("values", [{"other_s": 1.0}, {"some_s": "1"}, {"some_s": float("nan")}])
def test_an_unknown_key_and_a_value_of_another_type_are_refused(values: object) -> None:
    with pytest.raises(ValueError, match="Some"):
        Some.model_validate(values)
