"""What all sections of the file share: strict types, no unknown keys, no change after reading. No key is here."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Far over what any engine runs at once, and small enough to catch a byte count in the wrong place.
MAX_SEQUENCES = 100_000

# The schema key under which a text says in words what it may be; it is not published.
WORDS = "x-words"

FileName = Annotated[str, Field(min_length=1)]
# Strict mode would want enum members and tuples, which YAML does not have; the values themselves stay closed sets.
Word = Field(strict=False)


class Section(BaseModel):
    """What all sections share: strict types, no unknown keys, no change after reading."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=False,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_as_unset(cls, value: Any) -> Any:
        """A section whose keys are all commented out is null in YAML, and means its defaults."""
        return {} if value is None else value
