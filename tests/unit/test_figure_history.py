"""The charts of a node: bounded, without lines over gaps, kept over a restart."""

from __future__ import annotations

from pathlib import Path

from crew_journal.services.operate.history import FILE, HOUR_SAMPLES, SAMPLE_S, WEEK_EVERY_S, FigureHistory


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def read_figures() -> dict[str, float | None]:
    return {"head": 0.0, "lag": 0.0, "stream_bytes": None, "resident_bytes": 5.0, "free_bytes": 7.0}


async def test_rate_is_that_between_samples_and_a_pause_is_a_gap(tmp_path: Path) -> None:
    clock, head = Clock(), 0.0

    async def read() -> dict[str, float | None]:
        return {**await read_figures(), "head": head}

    history = FigureHistory(read, tmp_path, clock)
    for messages in (0, 30, 60):
        head += messages
        await history.sample()
        clock.now += SAMPLE_S
    clock.now += 20 * SAMPLE_S
    await history.sample()
    charts = {(chart.name, chart.span): chart for chart in history.charts()}
    stored = charts["Messages stored", "last hour"]
    assert (stored.last, stored.most) == (4.0, 4.0)
    assert len(charts["Free disk", "last hour"].lines) == 2
    assert charts["Size of the stream", "last hour"].last is None


async def test_samples_are_bounded_and_the_week_is_kept_over_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    history = FigureHistory(read_figures, tmp_path, clock)
    for _ in range(HOUR_SAMPLES + 10):
        await history.sample()
        clock.now += SAMPLE_S
    assert len(history.hour) == HOUR_SAMPLES
    assert len(history.week) == (HOUR_SAMPLES + 10) * SAMPLE_S // WEEK_EVERY_S + 1
    after = FigureHistory(read_figures, tmp_path, clock)
    await after.start()
    await after.stop()
    assert [sample.at for sample in after.week][: len(history.week)] == [sample.at for sample in history.week]


async def test_unreadable_file_is_left_out_and_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{broken")
    history = FigureHistory(read_figures, tmp_path, Clock())
    await history.start()
    await history.stop()
    assert (tmp_path / FILE).read_bytes().startswith(b"[")
