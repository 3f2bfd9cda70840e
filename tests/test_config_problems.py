"""Problems are told in the order of the file, placed, and without names that may be secrets."""

from proxy.config.problems import MAX_PROBLEMS, InvalidConfig, Problem, dotted
from proxy.errors import ConfigError


def test_problem_tells_file_place_key_and_message() -> None:
    assert (
        str(Problem("x.yaml", 12, 3, "routing.leave_at", "must be ...")) == "x.yaml:12:3: routing.leave_at: must be ..."
    )
    assert str(Problem("x.yaml", 1, 1, "", "is not YAML")) == "x.yaml:1:1: is not YAML"
    assert str(Problem("command line", 0, 0, "listen.port", "must be ...")) == "command line: listen.port: must be ..."


def test_error_lists_its_problems_in_the_order_of_the_file() -> None:
    problems = [Problem("x", line, column, "k", "m") for line, column in ((2, 1), (1, 9), (1, 2))]
    error = InvalidConfig(problems)
    assert isinstance(error, ConfigError)
    assert [(one.line, one.column) for one in error.problems] == [(1, 2), (1, 9), (2, 1)]
    assert error.message.splitlines() == [str(one) for one in error.problems]


def test_hundreds_of_problems_are_cut_and_counted() -> None:
    error = InvalidConfig(Problem("x", line, 1, "k", "m") for line in range(MAX_PROBLEMS + 50))
    assert len(error.problems) == MAX_PROBLEMS
    assert error.message.endswith("\n... and 50 more; mend these first")


def test_key_path_shows_names_and_places_in_lists_alone() -> None:
    assert dotted(("routing", "rules", 0, "when")) == "routing.rules.0.when"
    assert dotted(("backends", "api_key:sk-1")) == "backends.(a name not shown)"
    assert dotted(()) == ""


def test_a_file_in_a_folder_whose_name_is_no_utf8_is_named_in_text_that_can_be_written() -> None:
    told = str(Problem("/srv/caf\udce9/c.yaml", 7, 1, "nonsense", "is not a key here"))
    assert told == "/srv/caf\\udce9/c.yaml:7:1: nonsense: is not a key here"
    assert told.encode()
