"""The files of the status page: a browser gets the page, a program the paths, and nobody anything else."""

import pytest
from fakes.raw import Said, ask, request
from fakes.stage import Stage, staged

from proxy.watch.page import FOLDER

HTML = "accept: text/html,application/xhtml+xml,*/*;q=0.8"
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
KINDS = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain",
}
# The budget of the page with all its data is 300 KiB: a quarter of an hour of history takes about 90.
MAX_FILES_BYTES = 180 * 1024
MAX_LINES = 400


async def get(stage: Stage, path: str, *lines: str) -> Said:
    return await ask(stage.app.admin_port, request(path, b"", *lines, method="GET"))


async def test_a_browser_gets_the_page_and_a_program_the_paths() -> None:
    async with staged() as stage:
        page, paths = await get(stage, "/", HTML), await get(stage, "/", "accept: */*")
        assert page.header("content-type") == "text/html; charset=utf-8"
        assert b"<title>Crossover</title>" in page.body
        assert page.header("vary") == "Accept"
        assert paths.header("content-type") == "application/json"


@pytest.mark.parametrize("name", FILES)
async def test_every_file_is_served_with_its_kind_and_a_policy_that_lets_nothing_else_in(name: str) -> None:
    async with staged() as stage:
        said = await get(stage, f"/web/{name}")
    assert (said.status, said.body) == (200, (FOLDER / name).read_bytes())
    assert (said.header("content-type") or "").startswith(KINDS[name.rpartition(".")[2].rpartition("/")[2]])
    policy = said.header("content-security-policy") or ""
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert said.header("x-content-type-options") == "nosniff"


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with staged() as stage:
        tag = (await get(stage, "/web/main.js")).header("etag")
        again = await get(stage, "/web/main.js", f"if-none-match: {tag}")
        other = await get(stage, "/web/main.js", 'if-none-match: "another"')
    assert (again.status, again.body) == (304, b"")
    assert other.status == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/web/", "/web/nothing.js", "/web/../admin.py", "/web/%2e%2e/admin.py", "/web/..%2fadmin.py", "/web/vendor"),
        *("/web//etc/passwd", "/web/%00", "/web/index.html/", "/web/vendor/../../app.py"),
    ],
)
async def test_nothing_but_the_files_of_the_page_is_served(path: str) -> None:
    async with staged() as stage:
        assert (await get(stage, path)).status == 404


async def test_the_page_asks_for_the_token_as_everything_does() -> None:
    async with staged(admin={"port": 0, "token": "sesame"}) as stage:
        for path in ("/", "/web/main.js", "/web/vendor/LICENSE", "/stream", "/history", "/journal", "/explain/x"):
            assert (await get(stage, path, HTML)).status == 401
        assert (await get(stage, "/web/main.js", "authorization: Bearer sesame")).status == 200


def test_the_files_keep_within_the_weight_and_the_length_that_they_may_have() -> None:
    paths = [FOLDER / name for name in FILES]
    assert sum(path.stat().st_size for path in paths) <= MAX_FILES_BYTES
    own = [path for path in paths if "vendor" not in path.parts]
    assert [path.name for path in own if len(path.read_text().splitlines()) > MAX_LINES] == []


def test_the_page_names_no_address_of_another_host() -> None:
    for name in FILES:
        text = (FOLDER / name).read_text()
        if name.startswith("vendor/"):
            continue
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text


def test_the_page_makes_no_markup_of_texts() -> None:
    for path in FOLDER.glob("*.js"):
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in path.read_text(), path.name
