"""Pages of other sites get nothing from the operators' port through an operator's browser, whatever its name there."""

from pathlib import Path

import pytest
from fakes.certificates import Files
from fakes.raw import RawClient, ask, request
from fakes.stage import Stage, staged

from proxy.admin import OTHER_NAME, OTHER_SITE

FOREIGN = ("cross-site", "same-site")
READ = (
    *("/status", "/decisions", "/history", "/journal", "/config", "/config/differences", "/curves"),
    *("/openapi.json", "/openapi/clients.json", "/web/main.js", "/metrics", "/stream", "/explain/ID", "/nothing"),
)
ACTS = ("/reload", "/pin", "/drain")


async def said(stage: Stage, path: str, *lines: str, method: str = "GET", host: str = "localhost") -> tuple[int, bytes]:
    body = b'{"role": "baseline"}' if method == "POST" else b""
    answer = await ask(stage.app.admin_port, request(path, body, *lines, method=method, host=host))
    return answer.status, answer.body


# ---------------------------------------------------------------- other sites


@pytest.mark.parametrize("site", FOREIGN)
async def test_a_page_of_another_site_reads_nothing(site: str) -> None:
    async with staged() as stage:
        for mode in ("no-cors", "cors", "navigate"):
            for path in READ:
                status, body = await said(stage, path, f"sec-fetch-site: {site}", f"sec-fetch-mode: {mode}")
                assert (status, OTHER_SITE.encode() in body) == (403, True), (path, mode)
        for path in ACTS:
            assert (await said(stage, path, f"sec-fetch-site: {site}", method="POST"))[0] == 403
        assert stage.app.desk.rules.operator_pin is None


@pytest.mark.parametrize("site", FOREIGN)
async def test_a_link_to_the_status_page_and_a_look_at_health_are_welcome(site: str) -> None:
    async with staged() as stage:
        site = f"sec-fetch-site: {site}"
        went = ("sec-fetch-mode: navigate", "sec-fetch-dest: document", "accept: text/html")
        status, body = await said(stage, "/", site, *went)
        assert (status, b"<title>" in body) == (200, True)
        assert (await said(stage, "/health", site, "sec-fetch-mode: no-cors"))[0] == 200
        assert (await said(stage, "/", site, "sec-fetch-mode: navigate", "sec-fetch-dest: iframe"))[0] == 403
        assert (await said(stage, "/", site, "sec-fetch-mode: no-cors"))[0] == 403


@pytest.mark.parametrize("lines", [(), ("sec-fetch-site: same-origin",), ("sec-fetch-site: none",)])
async def test_our_own_page_programs_and_people_are_served(lines: tuple[str, ...]) -> None:
    async with staged() as stage:
        for path in ("/status", "/metrics", "/web/main.js", "/"):
            assert (await said(stage, path, *lines))[0] == 200
        assert (await said(stage, "/pin", *lines, method="POST"))[0] == 200


# ---------------------------------------------------------------- other names


async def test_without_a_token_a_name_that_may_be_anybodys_opens_nothing() -> None:
    async with staged() as stage:
        for host in ("evil.example", "evil.example:29000", "crossover:29000"):
            for path in ("/", "/status", "/stream", "/web/main.js", "/nothing"):
                status, body = await said(stage, path, host=host)
                assert (status, OTHER_NAME.encode() in body) == (421, True)
            for path in ACTS:
                lines = (f"origin: http://{host}", "sec-fetch-site: same-origin")
                assert (await said(stage, path, *lines, method="POST", host=host))[0] == 421
        assert stage.app.desk.rules.operator_pin is None


@pytest.mark.parametrize("path", ["/metrics", "/health"])
async def test_scrapers_and_probes_come_by_any_name(path: str) -> None:
    async with staged() as stage:
        for host in ("crossover:29000", "crossover.default.svc.cluster.local", "x"):
            assert (await said(stage, path, host=host))[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1:29000", "[::1]:29000", "localhost:29000"])
async def test_addresses_and_localhost_open_it(host: str) -> None:
    async with staged() as stage:
        assert (await said(stage, "/status", host=host))[0] == 200


async def test_who_names_no_host_is_no_browser() -> None:
    async with staged() as stage, RawClient(stage.app.admin_port) as client:
        await client.send(b"GET /status HTTP/1.0\r\n\r\n")
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("admin", [{"host": "localhost"}, {"token": "sesame"}])
async def test_the_configured_host_or_a_token_opens_it(admin: dict[str, str]) -> None:
    async with staged(admin={"port": 0, **admin}) as stage:
        host = admin.get("host", "anybodys.example")
        assert (await said(stage, "/status", "authorization: Bearer sesame", host=host))[0] == 200


async def test_with_tls_a_certificate_says_whose_port_it_is(tmp_path: Path) -> None:
    async with staged(admin={"port": 0, "tls": Files(tmp_path).section}) as stage:
        assert stage.app.own_name() is None
