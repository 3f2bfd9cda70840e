"""The allow-list and its lookup: what is served, what is refused and how, and that no path is read in two ways."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import CrossoverError, InvalidRequest, MethodNotAllowed, RouteRefused, UnknownRoute, UpgradeRefused
from proxy.model import Dialect
from proxy.protocol.allowlist import REFUSED, ROUTES, STORED_RESPONSES
from proxy.protocol.routes import LIVENESS_PATHS, READINESS_PATHS, EngineKind, RouteClass, exact, find

SGLANG, VLLM = EngineKind.SGLANG, EngineKind.VLLM


@pytest.mark.parametrize(
    ("path", "kind", "dialect"),
    [
        ("/v1/chat/completions", RouteClass.DECODE, Dialect.CHAT),
        ("/v1/completions", RouteClass.DECODE, Dialect.COMPLETIONS),
        ("/v1/responses", RouteClass.DECODE, Dialect.RESPONSES),
        ("/v1/messages", RouteClass.DECODE, Dialect.MESSAGES),
        ("/generate", RouteClass.DECODE, Dialect.GENERATE),
        ("/invocations", RouteClass.DECODE, Dialect.CHAT),
        ("/vertex_generate", RouteClass.DECODE, Dialect.PLAIN),
        ("/api/chat", RouteClass.DECODE, Dialect.OLLAMA),
        ("/api/generate", RouteClass.DECODE, Dialect.OLLAMA),
        ("/v1/embeddings", RouteClass.PREFILL, Dialect.PLAIN),
        ("/v1/rerank", RouteClass.PREFILL, Dialect.PLAIN),
        ("/v1/decisions", RouteClass.PREFILL, Dialect.PLAIN),
        ("/v1/audio/transcriptions", RouteClass.AUDIO, Dialect.PLAIN),
        ("/v1/messages/count_tokens", RouteClass.CPU, Dialect.MESSAGES),
        ("/tokenize", RouteClass.CPU, Dialect.PLAIN),
        ("/api/show", RouteClass.INFO, Dialect.OLLAMA),
    ],
)
def test_a_posted_path_of_sglang_has_its_class_and_dialect(path: str, kind: RouteClass, dialect: Dialect) -> None:
    route = find(SGLANG, "POST", path)
    assert (route.template, route.kind, route.dialect) == (path, kind, dialect)


@pytest.mark.parametrize("path", ["/", "/v1/models", "/v1/loads", "/model_info", "/metrics", "/metrics/x", "/api/tags"])
def test_an_information_path_takes_get_and_head_and_no_lease(path: str) -> None:
    for method in ("GET", "HEAD"):
        route = find(SGLANG, method, path)
        assert route.kind is RouteClass.INFO
        assert not route.counts


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions/batch", RouteClass.DECODE),
        ("/inference/v1/generate", RouteClass.DECODE),
        ("/cohere/v2/chat", RouteClass.DECODE),
        ("/v2/rerank", RouteClass.PREFILL),
        ("/pooling", RouteClass.PREFILL),
        ("/v1/audio/translations", RouteClass.AUDIO),
        ("/v1/completions/derender", RouteClass.CPU),
    ],
)
def test_a_posted_path_of_vllm_has_its_class(path: str, kind: RouteClass) -> None:
    assert find(VLLM, "POST", path).kind is kind
    with pytest.raises(UnknownRoute, match="vllm engines only"):
        find(SGLANG, "POST", path)


def test_only_gpu_work_takes_a_lease() -> None:
    for rows in ROUTES.values():
        for route in rows:
            assert route.counts == (route.kind in {RouteClass.DECODE, RouteClass.PREFILL, RouteClass.AUDIO})


def test_every_row_is_found_by_its_own_template_and_has_head_where_it_has_get() -> None:
    for engine, rows in ROUTES.items():
        assert len({row.template for row in rows}) == len(rows)
        for row in rows:
            path = row.template.partition("{")[0] + ("x" if "{" in row.template else "")
            for method in row.methods:
                assert find(engine, method, path) is row
            assert ("GET" in row.methods) == ("HEAD" in row.methods)


def test_no_path_is_both_served_and_refused_or_the_proxys_own() -> None:
    for engine, rows in ROUTES.items():
        templates = {row.template for row in rows}
        assert not templates & (REFUSED[engine] | LIVENESS_PATHS | READINESS_PATHS)


@pytest.mark.parametrize(
    "name",
    [
        "org/name",
        "org%2Fname",
        "org%252Fname",
        "a",
        "a:b@c",
        "a;b",
        "org/a;b=c",
        "..a",
        "a..",
        "v1.5",
        "...",
        "100%25",
        "100%2525zz",
        "org/na%20me",
        "%E4%BD%A0",
    ],
)
def test_a_model_card_is_found_with_slashes_and_encoded_ones(name: str) -> None:
    route = find(SGLANG, "GET", f"/v1/models/{name}?b=2&a=1&b=3&flag&sig=%E9%FF&s=1;2&q=hello%20world")
    assert route.template == "/v1/models/{model:path}"


def test_a_query_changes_nothing() -> None:
    assert find(SGLANG, "POST", "/generate?a=../..//&b=\\") is find(SGLANG, "PUT", "/generate")


@pytest.mark.parametrize("path", sorted(REFUSED[SGLANG]))
def test_an_operators_route_of_sglang_is_refused(path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        with pytest.raises(RouteRefused):
            find(SGLANG, method, path)


@pytest.mark.parametrize(
    "path", ["/update_weights_from_disk", "/update_weights_from_tensor", "/hicache/storage-backend/clear", "/dumper/x"]
)
def test_a_family_of_operators_routes_is_refused(path: str) -> None:
    with pytest.raises(RouteRefused):
        find(SGLANG, "POST", path)


@pytest.mark.parametrize("path", ["/server_info", "/sleep", "/collective_rpc", "/v1/load_lora_adapter"])
def test_an_operators_route_of_vllm_is_refused(path: str) -> None:
    with pytest.raises(RouteRefused):
        find(VLLM, "POST", path)


@pytest.mark.parametrize("path", ["/v1/responses/resp_1", "/v1/responses/resp_1/cancel"])
@pytest.mark.parametrize("engine", [SGLANG, VLLM])
def test_a_stored_response_is_asked_for_and_occupies_no_engine(engine: EngineKind, path: str) -> None:
    route = find(engine, "POST" if path.endswith("cancel") else "GET", path)
    assert (route.template, route.kind, route.counts) == (STORED_RESPONSES, RouteClass.INFO, False)


@pytest.mark.parametrize("path", ["/slots", "/slots/0", "/lora-adapters", "/v1/stream/c1", "/models/load"])
def test_an_operators_route_of_llamacpp_is_refused(path: str) -> None:
    with pytest.raises(RouteRefused):
        find(EngineKind.LLAMACPP, "POST", path)


@pytest.mark.parametrize("path", ["/chat/completions/input_tokens", "/responses/input_tokens", "/audio/transcriptions"])
def test_llamacpp_is_asked_by_its_short_paths_as_by_the_long_ones(path: str) -> None:
    short, long = (find(EngineKind.LLAMACPP, "POST", each) for each in (path, f"/v1{path}"))
    assert (short.kind, short.counts) == (long.kind, long.counts)


def test_llamacpp_tells_its_settings_and_takes_none() -> None:
    assert find(EngineKind.LLAMACPP, "GET", "/props").kind is RouteClass.INFO
    with pytest.raises(MethodNotAllowed):
        find(EngineKind.LLAMACPP, "POST", "/props")


@pytest.mark.parametrize("engine", [SGLANG, VLLM])
def test_a_websocket_route_is_refused_with_501(engine: EngineKind) -> None:
    with pytest.raises(UpgradeRefused) as caught:
        find(engine, "GET", "/v1/realtime?model=m")
    assert caught.value.status == 501


def test_a_wrong_method_is_told_the_right_ones() -> None:
    with pytest.raises(MethodNotAllowed, match="POST, PUT") as caught:
        find(SGLANG, "GET", "/generate")
    assert caught.value.allow == {"POST", "PUT"}
    with pytest.raises(MethodNotAllowed):
        find(SGLANG, "post", "/generate")


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions/", "/v1/responses/", "/v1/models/", "/v1/models/x/", "/metrics/"]
)
def test_a_trailing_slash_is_another_path(path: str) -> None:
    with pytest.raises(UnknownRoute):
        find(SGLANG, "GET", path)


def test_an_unknown_path_is_told_what_to_do_and_not_quoted() -> None:
    with pytest.raises(UnknownRoute, match="remove the slash"):
        find(SGLANG, "POST", "/generate/")
    with pytest.raises(UnknownRoute, match="/v1/chat/completions") as caught:
        find(SGLANG, "POST", "/v1/secret-thing")
    assert "secret" not in caught.value.message
    with pytest.raises(UnknownRoute, match="sglang engines only"):
        find(VLLM, "POST", "/generate")


@pytest.mark.parametrize(
    "target",
    [
        "/v1/../flush_cache",
        "/v1/models/../../flush_cache",
        "/v1/models/%2e%2e/%2E%2e/flush_cache",
        "/v1/models/..%2f..%2fflush_cache",
        "/v1/models/.%2e",
        "/metrics/..;/flush_cache",
        "/metrics/..;a=b/flush_cache",
        "/metrics/..%3bx/flush_cache",
        "/metrics/x/..;",
        "/metrics/.;/x",
        "/metrics/;/x",
        "/metrics/x/;a",
        "/v1/models/%252e%252e/flush_cache",
        "/v1/models/%25252e./flush_cache",
        "/v1/models/x%252f%252e%252e%252fflush_cache",
        "/v1/models/x%252f%252fy",
        "/v1/models/x%255c..",
        "/v1/models/x%250d%250aFAKE",
        "/v1/models/%c0%ae%c0%ae/flush_cache",
        "/v1/models/x%25c0%25af",
        "/v1/models/x%" + "25" * 20_000 + "2e",
        "/v1/models/a/./b",
        "/v1/models//a",
        "/v1/models/a%2f%2fb",
        "//evil/v1/models",
        "/v1//models",
        "/v1%2Fmodels",
        "/%66lush_cache",
        "/flush%5Fcache",
        "http://evil/v1/models",
        "evil:443",
        "*",
        "",
        "v1/models",
        "/v1/models/a\\b",
        "/v1/models/a%5cb",
        "/v1/models/a%00",
        "/v1/models/%0d%0aFAKE",
        "/v1/models/a\r\nX: 1",
        "/v1/models/a b",
        "/v1/models/ä",
        "/v1/models/\udce9",
        "/v1/models/%zz",
        "/v1/models/a%2",
        "/v1/models/a#b",
        "/v1/models?a\r\nb",
        "/v1/models?a b",
        "/v1/models?a#b",
    ],
)
def test_a_target_that_could_be_read_in_two_ways_is_refused(target: str) -> None:
    with pytest.raises((UnknownRoute, InvalidRequest)) as caught:
        find(SGLANG, "GET", target)
    assert caught.value.status in {400, 404}


@given(st.sampled_from(EngineKind), st.sampled_from(["GET", "POST", "HEAD", "X"]), st.text() | st.from_regex(r"/v1/.*"))
def test_any_target_is_found_or_refused(engine: EngineKind, method: str, target: str) -> None:
    try:
        route = find(engine, method, target)
    except CrossoverError as error:
        assert 400 <= error.status <= 501
        return
    path = target.partition("?")[0]
    assert method in route.methods
    assert path.isascii()
    assert path == route.template or path.startswith(route.template.partition("{")[0])


@given(st.text(alphabet="/.%2eEfF5cC\\0Aab", max_size=30))
def test_no_model_path_climbs_out_of_its_place(tail: str) -> None:
    try:
        find(SGLANG, "GET", "/v1/models/" + tail)
    except CrossoverError:
        return
    seen = tail.lower().replace("%2f", "/").replace("%2e", ".").split("/")
    assert "" not in seen
    assert not {".", ".."} & set(seen)
    assert "\\" not in tail


@pytest.mark.parametrize("engines", [(kind,) for kind in EngineKind] + [tuple(EngineKind), tuple(EngineKind)[::-1]])
def test_a_target_that_is_known_word_for_word_is_what_all_engines_find(engines: tuple[EngineKind, ...]) -> None:
    known = exact(engines)
    for template in {row.template for rows in ROUTES.values() for row in rows} | LIVENESS_PATHS | READINESS_PATHS:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "get"):
            found = []
            with contextlib.suppress(CrossoverError):
                found = [find(engine, method, template) for engine in engines]
            if "{" in template or (found and "{" in found[0].template):
                continue  # not word for word
            assert known.get((method, template)) is (found[0] if found else None)


def test_no_row_is_a_path_of_the_proxys_own_or_served_to_a_preflight() -> None:
    for engine in EngineKind:
        for method, path in exact([engine]):
            assert path not in LIVENESS_PATHS | READINESS_PATHS
            assert method != "OPTIONS"
