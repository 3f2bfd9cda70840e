"""Entries are bounded whatever they quote, and can be written as JSON."""

import orjson

from proxy.watch.journal import MAX_CHARACTERS, MAX_ENTRIES, Entry, Journal


def test_a_sentence_and_its_words_are_cut_and_such_as_json_can_carry() -> None:
    journal = Journal()
    journal.write(Entry(1.0, "engine_seen", None, "é\udce9" * 5000, {"version": "\udce9" * 5000, "at": 1.5}))
    [entry] = journal.newest(1)
    told = orjson.loads(orjson.dumps(entry.told(0.0)))
    assert told["sentence"].startswith("é\\udce9é") and told["sentence"].endswith(" …")
    assert told["numbers"]["at"] == 1.5
    assert len(told["sentence"]) == len(told["numbers"]["version"]) == MAX_CHARACTERS


def test_short_entries_stay_as_they_are_and_all_are_counted() -> None:
    journal, entry = Journal(), Entry(1.0, "pin", None, "An operator pinned.", {"before": "none", "after": None})
    for _ in range(MAX_ENTRIES + 1):
        journal.write(entry)
    assert set(map(str, journal.entries)) == {str(entry)}
    assert (len(journal.entries), journal.written) == (MAX_ENTRIES, MAX_ENTRIES + 1)
