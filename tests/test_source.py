"""A configuration that does not come from its disk is one that cannot be used, and is told as such."""

import threading

import pytest

from proxy import config, source
from proxy.config import InvalidConfig, Settings
from proxy.disk import Disk
from proxy.source import anew

SETTINGS = config.from_mapping(
    {"backends": {"speculative": {"url": "http://127.0.0.1:1"}, "baseline": {"url": "http://127.0.0.1:2"}}}
)


async def test_the_settings_come_with_the_contexts_of_their_tls() -> None:
    assert await anew(lambda: SETTINGS, Disk()) == (SETTINGS, {})


async def test_what_is_wrong_with_them_is_raised() -> None:
    def wrong() -> Settings:
        return config.override(SETTINGS, {"listen.port": 70000})

    with pytest.raises(InvalidConfig, match=r"listen\.port"):
        await anew(wrong, Disk())


async def test_a_disk_that_hangs_is_told_in_time_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "READ_WITHIN_S", 0.01)
    answers = threading.Event()

    def read() -> Settings:
        answers.wait()
        return SETTINGS

    disk = Disk()
    with pytest.raises(InvalidConfig) as told:
        await anew(read, disk)
    assert told.value.message == (
        "the configuration: cannot be read (its disk did not answer within 0.01 s); mend: see to its disk, then reload"
    )
    answers.set()
    monkeypatch.undo()
    assert (await anew(read, disk))[0] == SETTINGS
