"""What nats-server says of damage is found in its log, of the server that runs alone."""

from __future__ import annotations

from pathlib import Path

from crew_journal.services.journal.broker.broker import SHOWN, damage_warnings

LOG = """\
[11] 2026/11/22 09:10:12.000001 [WRN] Filestore [JOURNAL] Stream state checksum did not match
[12] 2026/11/22 09:10:13.000001 [INF] Starting nats-server
[12] 2026/11/22 09:10:13.000002 [WRN] Plaintext passwords detected, use nkeys or bcrypt
[12] 2026/11/22 09:10:13.000003 [WRN] Filestore [JOURNAL] Stream state detected prior state, could not locate msg block 2
[12] 2026/11/22 09:10:13.000004 [WRN]   Missing stream metafile for "FOLDER/store/jetstream/JOURNAL/streams/JOURNAL/meta.inf"
[12] 2026/11/22 09:10:14.000005 [WRN] Filestore [JOURNAL] Stream state detected prior state, could not locate msg block 2
[12] 2026/11/22 09:10:15.000006 [WRN] Filestore [CANARY] Stream state outdated, last block has additional entries
[12] 2026/11/22 09:10:15.000007 [WRN] Filestore [CANARY] Recovering stream state from index errored: prior state file
no line of the server
"""


def test_warnings_of_damage_are_found_each_once_with_the_last_time(tmp_path: Path) -> None:
    log = tmp_path / "nats.log"
    log.write_text(LOG.replace("FOLDER", str(tmp_path)))
    assert damage_warnings(log, 12) == [
        '2026/11/22 09:10:13.000004 Missing stream metafile for "/store/jetstream/JOURNAL/streams/JOURNAL/meta.inf"',
        "2026/11/22 09:10:14.000005 Filestore [JOURNAL] Stream state detected prior state, could not locate msg block 2",
    ]


def test_an_endless_or_absent_log_costs_little(tmp_path: Path) -> None:
    log = tmp_path / "nats.log"
    assert damage_warnings(log, 12) == []
    lines = "".join(f"[12] 2026/11/22 09:10:13.000001 [WRN] Filestore bad block {n}\n" for n in range(40_000))
    log.write_text(lines)
    assert len(damage_warnings(log, 12)) == SHOWN
    assert damage_warnings(log, None) == []
