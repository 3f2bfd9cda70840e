"""A configuration file becomes settings, or every problem in it is told at once with its place and its mend."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.config import InvalidConfig, Problem, Settings, from_mapping, load, override
from proxy.config.key_files import MAX_KEY_FILE_BYTES
from proxy.config.loading import MAX_FILE_BYTES
from proxy.errors import ConfigError
from proxy.model import Role

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "config" / "crossover.yaml"
BACKENDS = 'backends: {speculative: {url: "http://a:1"}, baseline: {url: "http://b:2"}}\n'
SECRET = "sk-Vault42-Never"

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration file and gives its path."""

    def written(content: str | bytes) -> Path:
        path = tmp_path / "crossover.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def problems_of(path: Path, environ: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(InvalidConfig) as caught:
        load(path, environ or {})
    return caught.value.problems


def only_problem(path: Path, environ: Mapping[str, str] | None = None) -> Problem:
    found = problems_of(path, environ)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


# ---------------------------------------------------------------- files that are right


def test_shipped_file_holds_the_default_of_every_key() -> None:
    urls = {"speculative": {"url": "http://127.0.0.1:30001"}, "baseline": {"url": "http://127.0.0.1:30002"}}
    assert load(SHIPPED, {}) == from_mapping({"backends": urls})


def test_two_urls_are_enough(write: Write) -> None:
    loaded = load(write(BACKENDS), {})
    assert (loaded.backends.of(Role.SPECULATIVE).url, loaded.backends.of(Role.BASELINE).url) == (
        "http://a:1",
        "http://b:2",
    )
    assert (loaded.listen.port, loaded.timeouts.connect_s, loaded.routing.rules) == (30000, 2.0, ())


def test_sections_without_keys_mean_the_defaults(write: Write) -> None:
    text = BACKENDS + "listen:\nrouting:\n  rules:\ntimeouts: null\n"
    assert load(write(text), {}) == load(write(BACKENDS), {})


def test_byte_order_mark_and_windows_line_ends_are_read(write: Write) -> None:
    text = "\ufeff" + BACKENDS + "queue:\n  max_waiting: 7\n"
    assert load(write(text.replace("\n", "\r\n")), {}).queue.max_waiting == 7


# ---------------------------------------------------------------- files that are wrong


def test_eight_mistakes_give_eight_problems_each_on_its_line() -> None:
    path = ROOT / "tests" / "data" / "config" / "eight_mistakes.yaml"
    found = {problem.line: (problem.key, problem.message) for problem in problems_of(path)}
    expected = {
        3: ("listen.port", "`port: 30000`"),
        6: ("backends.speculative.url", "remove the path"),
        7: ("backends.speculative.api_key", "CROSSOVER_TEST_UNSET is not set"),
        11: ("routing.leave_at", "must be above routing.enter_at (6), not 4"),
        13: ("routing.min_dwell", "did you mean min_dwell_s?"),
        14: ("routing.allow_header", "write true"),
        16: ("timeouts.stall_s", "`stall_s: 90`"),
        19: ("queue.max_waiting", "given twice, first on line 18"),
    }
    assert found.keys() == expected.keys()
    for line, (key, words) in expected.items():
        assert found[line][0] == key
        assert words in found[line][1]


def test_message_of_the_error_lists_each_problem_with_its_place(write: Write) -> None:
    path = write(BACKENDS + "queue:\n  max_waiting: -1\n  max_wait: 3\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert caught.value.message.splitlines() == [
        f"{path}:3:3: queue.max_waiting: must be a whole number, not -1; allowed: 0 to 100000; "
        "mend: write `max_waiting: 100` or the like",
        f"{path}:4:3: queue.max_wait: is not a key here; allowed: max_waiting, max_wait_s; "
        "mend: did you mean max_wait_s?",
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "backends:\n", "backends: {speculative: }\n"])
def test_missing_urls_are_named_one_by_one(write: Write, text: str) -> None:
    found = problems_of(write(text))
    assert [problem.key for problem in found] == ["backends.baseline.url", "backends.speculative.url"]
    assert all("is required" in problem.message and problem.line == 1 for problem in found)


@pytest.mark.parametrize("text", ["- a\n", "text\n", "7\n"])
def test_file_that_is_no_mapping_is_one_problem(write: Write, text: str) -> None:
    problem = only_problem(write(text))
    assert (problem.line, problem.key) == (1, "")
    assert "must be a mapping" in problem.message


def test_unreadable_files_are_one_problem(tmp_path: Path, write: Write) -> None:
    assert "No such file" in only_problem(tmp_path / "absent.yaml").message
    assert "cannot be read" in only_problem(tmp_path).message
    assert "cannot be read" in only_problem(Path("nul\0byte")).message
    assert "larger than" in only_problem(write(b"#" * (MAX_FILE_BYTES + 1))).message
    not_utf8 = only_problem(write(b"listen:\n  host: caf\xe9\n"))
    assert (not_utf8.line, not_utf8.column, "UTF-8" in not_utf8.message) == (2, 12, True)


# ---------------------------------------------------------------- keys in files, secrets


def with_key_file(name: str) -> str:
    return f'backends: {{speculative: {{url: "http://a:1", api_key_file: {name}}}, baseline: {{url: "http://b:2"}}}}\n'


def test_key_file_is_read_beside_the_configuration_and_stripped(tmp_path: Path, write: Write) -> None:
    (tmp_path / "engine.key").write_text(f"  {SECRET}\n")
    loaded = load(write(with_key_file("engine.key")), {})
    assert loaded.backends.speculative.api_key is not None
    assert loaded.backends.speculative.api_key.get_secret_value() == SECRET
    assert loaded.backends.speculative.api_key_file == "engine.key"
    assert loaded.backends.baseline.api_key is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no regular file"),
        (b"", "must not be empty"),
        (b" \n", "must not be empty"),
        (SECRET.encode() + b"\n" + SECRET.encode(), "one word"),
        (SECRET.encode() + b"\xff", "one word"),
        (b"k" * (MAX_KEY_FILE_BYTES + 1), "larger than"),
    ],
)
def test_key_file_that_holds_no_key_is_a_problem(
    tmp_path: Path, write: Write, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "engine.key").write_bytes(content)
    problem = only_problem(write(with_key_file("engine.key")))
    assert (problem.key, problem.line) == ("backends.speculative.api_key_file", 1)
    assert words in problem.message
    assert SECRET not in str(problem)


def test_key_file_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, write: Write) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in only_problem(write(with_key_file("pipe"))).message


def test_key_file_is_checked_although_another_key_is_wrong(write: Write) -> None:
    found = problems_of(write(with_key_file("absent.key") + "queue: 5\n"))
    assert [problem.key for problem in found] == ["backends.speculative.api_key_file", "queue"]


SECRET_PLACES = [
    "backends: {speculative: {url: 'http://a:1', api_key: SECRET}, baseline: {url: 'http://a:1'}}",
    "backends: {speculative: {url: 'http://a:1', api_key: [SECRET]}, baseline: {api_key: {SECRET: 1}}}",
    "backends: {speculative: {url: 'http://u:SECRET@a:1'}, baseline: {url: 'http://b:1/?key=SECRET'}}",
    "backends: {speculative: {api_key:SECRET}, baseline: {url: 'http://b:1', api_key_SECRET: 1}}",
    "backends: {speculative: {url: 'SECRET', api_key: 'SECRET SECRET'}, baseline: SECRET}",
    "backends: {baseline: {api_key: *SECRET}, speculative: {api_key: &SECRET x}}",
    "listen: {host: 'http://SECRET', port: SECRET, body_timeout_s: SECRETs}\nlog: {level: SECRET}\nplacement: SECRET",
    "listen: SECRET\nqueue: [SECRET]\nrouting: {rules: SECRET, allow_header: SECRET}\n? [SECRET]\n: SECRET",
    "listen: !SECRET x",
    "listen: !SECRET!x x",
    "api_key: SECRET: x",
    "api_key:SECRET",
    "'SECRET",
    "listen: {port: ${KEY}, host: '${KEY}/'}\nlog: {level: ${KEY}}\nqueue: ${KEY}\nplacement: ${KEY:-SECRET}",
    "listen: {port: '${SECRET-}'}",
    "SECRET: 1\nSECRET: 2",
    "%TAG !SECRET! x\n%TAG !SECRET! y\n--- a",
]


@pytest.mark.parametrize("text", SECRET_PLACES)
def test_secret_is_never_told_wherever_it_stands_wrongly(write: Write, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(write(text.replace("SECRET", SECRET)), {"KEY": SECRET})
    told = (caught.value.message, repr(caught.value), repr(caught.value.problems))
    assert not any(SECRET in one for one in told), told


def test_secret_is_not_in_the_representation_of_settings(write: Write) -> None:
    text = f"backends: {{speculative: {{url: 'http://a:1', api_key: {SECRET}}}, baseline: {{url: 'http://b:1'}}}}"
    loaded = load(write(text), {})
    assert SECRET not in repr(loaded) + str(loaded) + repr(loaded.model_dump()) + loaded.model_dump_json()


def test_key_of_digits_stays_text(write: Write) -> None:
    text = """
backends:
  speculative: {url: "http://a:1", api_key: 0042}
  baseline:
    url: http://b:2
    api_key: ${ENGINE_KEY}
"""
    backends = load(write(text), {"ENGINE_KEY": "1e3"}).backends
    assert [key.get_secret_value() for key in (backends.speculative.api_key, backends.baseline.api_key) if key] == [
        "0042",
        "1e3",
    ]


# ---------------------------------------------------------------- settings built in code


def test_mapping_is_held_to_the_rules_of_a_file() -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://a:1/"}}
    with pytest.raises(InvalidConfig) as caught:
        from_mapping({"backends": urls, "listen": {"port": "1"}, "routing": {"leave_at": 3, "enter_at": 5}})
    assert [str(problem).split(";")[0] for problem in caught.value.problems] == [
        "settings: backends.baseline.url: must not be the url of backends.speculative",
        'settings: listen.port: must be a whole number, not the text "1"',
        "settings: routing.leave_at: must be above routing.enter_at (5), not 3",
    ]


def test_mapping_with_keys_that_are_not_text_is_a_problem() -> None:
    with pytest.raises(InvalidConfig):
        from_mapping({1: 2})  # type: ignore[dict-item]


def loaded_from(**sections: object) -> Settings:
    urls = {"speculative": {"url": "http://a:1", "api_key": SECRET}, "baseline": {"url": "http://b:2"}}
    return from_mapping({"backends": urls, **sections})


def test_override_changes_the_named_keys_alone() -> None:
    before = loaded_from(routing={"rules": [{"when": "session", "role": "baseline"}]})
    after = override(before, {"listen.port": 8080, "log.format": "text", "placement": "shared"})
    assert after == loaded_from(
        routing={"rules": [{"when": "session", "role": "baseline"}]},
        listen={"port": 8080},
        log={"format": "text"},
        placement="shared",
    )


def test_override_is_refused_when_the_whole_would_be_impossible() -> None:
    with pytest.raises(InvalidConfig) as caught:
        override(loaded_from(), {"listen.port": 29000, "log.colour": True, "log.level": "INFO"})
    assert [(problem.file, problem.key) for problem in caught.value.problems] == [
        ("command line", "admin.port"),
        ("command line", "log.colour"),
        ("command line", "log.level"),
    ]


def test_override_keeps_a_key_that_was_read_from_a_file(tmp_path: Path, write: Write) -> None:
    (tmp_path / "engine.key").write_text(SECRET)
    loaded = load(write(with_key_file("engine.key")), {})
    assert override(loaded, {"listen.port": 1}).backends == loaded.backends


# ---------------------------------------------------------------- whatever the file holds


def assert_loads_or_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        loaded = load(path, {"SET": "1", "ODD": "\udcff\x00"})
    except InvalidConfig as error:
        assert error.problems
        assert all(problem.message and problem.line >= 1 for problem in error.problems)
    else:
        assert isinstance(loaded, Settings)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "crossover.yaml"


ATOMS = st.sampled_from(
    [
        *("listen", "backends", "speculative", "url", "routing", "rules", "leave_at", "api_key", "api_key_file", "<<"),
        *(": ", ":", "- ", "[", "]", "{", "}", ", ", "\n", "\n  ", "\n    ", "'", '"', "#", "|", ">", "?", "\t"),
        *("&a ", "*a", "!!str ", "!<x> ", "---\n", "...\n", "%YAML 9" + "9" * 5000 + ".1\n", "${SET}", "${", "${ODD}"),
        *('"\\UFFFFFFFF"', '"\\ud800"', "\x00", "\ufeff", "\u2028", "1", "-0", "1e999", "." * 3, "~", "yes", "true"),
        *("9" * 5000, "http://a:1", "http://[::1]:1", "2s", "64MiB"),
    ]
)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_load_or_are_refused(scratch: Path, content: bytes) -> None:
    assert_loads_or_is_refused(scratch, content)


@given(st.lists(ATOMS | st.text(max_size=4), max_size=30).map("".join))
@example('a: "\\UFFFFFFFF"')
@example("? ? ? a")
@example("[[[[[[[[[[[[[[[[[[[[[[")
@example("backends: {speculative: {url: '\\0'}}")
@settings(max_examples=400, deadline=None)
def test_any_yaml_like_text_loads_or_is_refused(scratch: Path, text: str) -> None:
    assert_loads_or_is_refused(scratch, text.encode(errors="surrogatepass"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
LINES = [line for line in SHIPPED.read_text().splitlines() if ":" in line and not line.lstrip().startswith("#")]


@given(index=st.integers(0, len(LINES) - 1), value=VALUES)
@settings(max_examples=200, deadline=None)
def test_shipped_file_with_any_value_in_any_place_loads_or_is_refused(scratch: Path, index: int, value: object) -> None:
    changed = f"{LINES[index].partition(':')[0]}: {json.dumps(value)}"  # JSON is YAML's flow style
    text = "\n".join((*LINES[:index], changed, *LINES[index + 1 :]))
    assert_loads_or_is_refused(scratch, text.encode(errors="surrogatepass"))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_shipped_file_with_a_piece_cut_or_put_in_loads_or_is_refused(scratch: Path, data: st.DataObject) -> None:
    text = "\n".join(LINES)
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    put_in = data.draw(ATOMS | st.text(max_size=5) | st.just(""))
    assert_loads_or_is_refused(scratch, (text[:begin] + put_in + text[end:]).encode(errors="surrogatepass"))
