"""Certificate files become contexts that are strict, or problems that name the key and the mend."""

import ssl
from pathlib import Path

import pytest
from fakes.certificates import Files

from proxy.config import InvalidConfig, Settings, contexts, from_mapping
from proxy.config.certificates import MAX_FILE_BYTES, files_of

BACKENDS = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def settings(folder: Path = Path(), **sections: object) -> Settings:
    return from_mapping({"backends": BACKENDS, **sections}, folder)


def problem(**tls: object) -> str:
    """The one problem that a section's files are."""
    with pytest.raises(InvalidConfig) as told:
        settings(listen={"tls": tls})
    [found] = told.value.problems
    return f"{found.key}: {found.message}"


def test_without_tls_there_is_no_context_and_nothing_to_watch() -> None:
    assert contexts(settings()) == {}
    assert files_of(settings()) == ()


def test_each_section_with_tls_has_a_context(files: Files) -> None:
    both = {"listen": {"tls": files.section}, "admin": {"tls": files.section}}
    assert list(contexts(settings(**both))) == ["listen", "admin"]


def test_nothing_below_tls_1_2_and_no_renegotiation_is_spoken(files: Files) -> None:
    context = contexts(settings(admin={"tls": files.section}))["admin"]
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode is ssl.CERT_NONE


def test_named_authority_makes_clients_show_a_certificate(files: Files) -> None:
    tls = {**files.section, "client_ca_file": str(files.ca_file)}
    assert contexts(settings(listen={"tls": tls}))["listen"].verify_mode is ssl.CERT_REQUIRED


def test_files_count_from_the_folder_and_all_are_watched(files: Files) -> None:
    files.ca_file.touch()
    tls = {"cert_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "ca.pem"}
    made = settings(files.folder, listen={"tls": tls})
    assert files_of(made) == tuple(files.folder / name for name in ("tls.crt", "tls.key", "ca.pem"))


def test_authority_that_is_no_certificate_is_named(files: Files) -> None:
    said = problem(**files.section, client_ca_file=files.section["key_file"])
    assert said.startswith("listen.tls.client_ca_file: names a file without a certificate in PEM; mend: ")


def test_authority_that_is_spoiled_is_named(files: Files) -> None:
    text = files.ca_file.read_text().splitlines()
    (files.folder / "spoiled.pem").write_text("\n".join([text[0], "AAAA", *text[2:]]))
    said = problem(**files.section, client_ca_file=str(files.folder / "spoiled.pem"))
    assert said.startswith("listen.tls.client_ca_file: names a file that is no list of certificates (not PEM inside)")


def test_folder_in_place_of_a_file_is_named(files: Files) -> None:
    said = problem(cert_file=str(files.folder), key_file=files.section["key_file"])
    assert said.startswith("listen.tls.cert_file: names no regular file; mend: ")


@pytest.mark.parametrize("key", ["cert_file", "client_ca_file"])
def test_huge_file_is_read_by_nobody(files: Files, key: str) -> None:
    huge = files.folder / "huge"
    huge.write_bytes(files.ca_file.read_bytes())
    with huge.open("r+b") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    said = problem(**{**files.section, key: str(huge)})
    assert said == f"listen.tls.{key}: names a file larger than {MAX_FILE_BYTES} bytes; mend: check the path"


def test_no_problem_shows_what_is_in_a_file(files: Files) -> None:
    secret = Path(files.section["key_file"]).read_text().splitlines()[1]
    said = problem(cert_file=files.section["key_file"], key_file=files.section["key_file"])
    assert secret[:20] not in said
