"""What an upstream taught holds for one credential and for a time, and success outweighs a refusal."""

from __future__ import annotations

from tidemark.core.lessons import LESSON_SECONDS, Lessons


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_lesson_is_that_of_one_credential_and_ends() -> None:
    """After that nobody knows, so the upstream is asked again."""
    clock = Clock()
    lessons: Lessons[str] = Lessons(clock)
    assert lessons.of(b"alice", "counts") is None
    assert lessons.note_refused(b"alice", "counts")
    assert lessons.refuses(b"alice", "counts")
    assert lessons.of(b"bob", "counts") is None
    assert lessons.of(b"alice", "search") is None
    clock.now = LESSON_SECONDS
    assert lessons.of(b"alice", "counts") is None


def test_a_refusal_of_what_was_taken_before_is_not_believed() -> None:
    """Until the success is long ago, or a later one outweighs the refusal."""
    clock = Clock()
    lessons: Lessons[str] = Lessons(clock)
    lessons.note_taken(b"alice", "counts")
    assert not lessons.note_refused(b"alice", "counts")
    assert lessons.of(b"alice", "counts") is True
    clock.now = LESSON_SECONDS
    assert lessons.note_refused(b"alice", "counts")
    lessons.note_taken(b"alice", "counts")
    assert lessons.of(b"alice", "counts") is True
