"""YAML becomes plain values that know where they stood; what hides or breaks values is refused."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.yaml_nodes import MAX_NODES, Document, Place, decode, resolve


def decoded(text: str, **environ: str) -> Document:
    return decode(text, "x.yaml", environ, frozenset({"key"}))


def complaint(text: str, **environ: str) -> str:
    problems = decoded(text, **environ).problems
    assert len(problems) == 1, problems
    return str(problems[0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("", None), ("~", None), ("null", None), ("true", True), ("False", False), ("yes", "yes"), ("on", "on")),
        *(("0", 0), ("-12", -12), ("+3", 3), ("007", "007"), ("0x10", "0x10"), ("1_000", "1_000"), ("1:30", "1:30")),
        *(("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-2.", -2.0), (".inf", ".inf"), (".nan", ".nan"), ("2s", "2s")),
        *(("2024-01-01", "2024-01-01"), ("9" * 41, "9" * 41), ("٣", "٣"), ("a b", "a b")),
    ],
)
def test_plain_scalars_resolve_as_in_yaml_1_2(text: str, value: object) -> None:
    assert (resolve(text), type(resolve(text))) == (value, type(value))


def test_values_and_places_are_kept() -> None:
    document = decoded("a:\n  b: 1\n  'c': \"2\"\nd: [x, {e: }]\n")
    assert document.values == {"a": {"b": 1, "c": "2"}, "d": ["x", {"e": None}]}
    assert document.places["a", "b"] == Place(2, 3, "1")
    assert document.places["a", "c"] == Place(3, 3, "2", quoted=True)
    assert document.places["d", 1] == Place(4, 8)
    assert document.place(("d", 1, "absent")) == Place(4, 8)
    assert document.problems == ()


def test_section_given_twice_is_a_problem_and_both_halves_are_read() -> None:
    document = decoded("a: {b: 1}\na: {c: 2}\n")
    assert [str(problem) for problem in document.problems] == [
        "x.yaml:2:1: a: is given twice, first on line 1; mend: remove one of them"
    ]
    assert document.values == {"a": {"b": 1, "c": 2}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: &x 1", "x.yaml:1:4: a: has an anchor"),
        ("a: *x", "x.yaml:1:4: a: is an alias"),
        ("a: !!str 1", "x.yaml:1:4: a: has a tag"),
        ("a: !!python/object:os.system x", "x.yaml:1:4: a: has a tag"),
        ("<<: {a: 1}", "x.yaml:1:1: has a merge key"),
        ("<<: *x", "x.yaml:1:1: has a merge key"),
        ("? [a, b]\n: {c: [d]}", "x.yaml:1:3: has a key that is not a name"),
        ("a: 1\n---\nb: 2", "x.yaml:2:1: is a second document"),
        ("a: " + "[" * 20 + "]" * 20, "is nested too deep"),
        ("a: [" + "1," * MAX_NODES + "]", f"holds more than {MAX_NODES} values"),
        ('a: "x\\0y"', "x.yaml:1:4: a: holds characters that cannot be printed"),
        ('a: "\\ud800"', "x.yaml:1:4: a: holds characters that cannot be printed"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_place(text: str, told: str) -> None:
    assert told in complaint(text)


@pytest.mark.parametrize("key", ["<<", "? [a]\n"])
@pytest.mark.parametrize(
    ("value", "told"),
    [("[" * 20, "is nested too deep"), ("[" + "1," * MAX_NODES + "]", f"more than {MAX_NODES} values")],
)
def test_what_is_passed_over_is_bounded_like_what_is_read(key: str, value: str, told: str) -> None:
    assert told in str(decoded(f"{key}: {value}").problems[-1])


@pytest.mark.parametrize(
    ("text", "place", "mend"),
    [
        ("a:\n\tb: 1", "x.yaml:2:1: is not YAML", "remove tabs"),
        ("a: b: c", "x.yaml:1:5: is not YAML", "quote a value"),
        ("a: 1\nb\nc: 2", "x.yaml:3:1: is not YAML", "a space after the colon"),
        ("a: [1, 2\nb: 3", "x.yaml:2:2: is not YAML", "check the brackets"),
        ("a: {b: ${X}}", "x.yaml:1:9: is not YAML", "put quotes around ${...}"),
        ("a: 'b", "x.yaml:1:6: is not YAML", "check the indent, quotes"),
        ("ab: \x07", "x.yaml:1:5: is not YAML", "control characters"),
        ('a: "\\UFFFFFFFF"', "x.yaml:1:1: is not YAML", "remove it"),
        ("%YAML " + "9" * 5000 + ".1\n--- a", "x.yaml:1:1: is not YAML", "remove it"),
    ],
)
def test_syntax_error_is_placed_and_mended(text: str, place: str, mend: str) -> None:
    told = complaint(text)
    assert told.startswith(place)
    assert mend in told


def test_what_stands_before_a_syntax_error_is_told_too() -> None:
    assert len(decoded("a: 1\na: 2\nb: [\n").problems) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${PORT}", 30000),
        ('"${PORT}"', "30000"),
        ("1${PORT}", 130000),
        ("${FLAG}", True),
        ("${UNSET:-2.5}", 2.5),
        ("${UNSET:-}", None),
        ('"${UNSET:-}"', ""),
        ("[x, '${PORT}']", ["x", "30000"]),
    ],
)
def test_variables_are_read_as_if_they_had_been_written(text: str, value: object) -> None:
    document = decoded(f"a: {text}", PORT="30000", FLAG="true")
    assert (document.values, document.problems) == ({"a": value}, ())


def test_keys_are_not_filled_from_variables() -> None:
    assert decoded("${PORT}: 1", PORT="30000").values == {"${PORT}": 1}


@pytest.mark.parametrize(
    ("text", "told"), [("x${UNSET}", "UNSET is not set"), ("${ODD}", "characters that cannot be printed")]
)
def test_variable_that_cannot_be_filled_is_a_problem_of_its_key(text: str, told: str) -> None:
    document = decoded(f"a:\n  b: {text}", ODD="\udcff")
    assert [(one.line, one.column, one.key) for one in document.problems] == [(2, 6, "a.b")]
    assert told in document.problems[0].message
    assert document.is_broken(("a", "b"))
    assert not document.is_broken(("a",))


def test_text_keys_keep_numbers_as_text_and_null_as_nothing() -> None:
    document = decoded("key: 0012\nother: {key: }\nnumber: 12\n")
    assert document.values == {"key": "0012", "other": {"key": None}, "number": 12}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("ab1:#-'\" ", max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
        max_leaves=8,
    )
)
def test_what_is_dumped_as_yaml_is_read_back(value: object) -> None:
    document = decode(yaml.safe_dump(value), "x.yaml", {})
    assert (document.values, document.problems) == (value, ())


@given(st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.integers(0, 9), min_size=1, max_size=8))
def test_each_key_is_found_on_its_own_line(values: dict[str, int]) -> None:
    document = decode("".join(f"{name}: {value}\n" for name, value in values.items()), "x.yaml", {})
    assert [document.places[name,].line for name in values] == list(range(1, len(values) + 1))
