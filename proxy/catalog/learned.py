"""What an overflow teaches: a window, and how many tokens the upstream counts where we count one.

Between ``overflow.py``, which reads the provider's words, and the catalog, which remembers. Pure. Where the model is
not calibrated, both become one number, the window in our own tokens. Where it is, they stay apart: replies teach how
dense the upstream's tokens are, and a window that was made smaller for the same reason would be divided twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.core.planning.budget import ModelProfile, ModelWindow, reply_reserve
from proxy.upstream.overflow import Overflow

KEPT_RATIO = 0.8
"""Share of a window that stays after an overflow error, however much denser the upstream's tokens were."""
LEAST_RATIO = 0.25
"""Share of a window that one replay goes down to at most."""


@dataclass(frozen=True, slots=True)
class LearnedWindow:
    """What is known of a model since an overflow."""

    window: ModelWindow
    density: float = 1.0
    """The upstream's tokens for one of ours; 1 where the window is in our own."""
    whole_reply: bool = False
    """See ``ModelProfile``."""

    def over(self, found: ModelWindow) -> ModelWindow:
        """The window as it holds: what a person stated, as far as it has not proved too large; else what was taught."""
        learned = self.window
        if found.source != "manual":
            return learned
        return replace(
            found,
            max_input_tokens=min(found.max_input_tokens, learned.max_input_tokens),
            context_window=min(found.window, learned.window),
        )


def lesson_of_reply(
    profile: ModelProfile, overflow: Overflow, sent_tokens: int, asked: int | None
) -> LearnedWindow | None:
    """What a refusal teaches whose cause is the reply alone: the input fits the window, both together do not.

    The window is not smaller for it than the upstream says; what is new is that the whole reply counts (vLLM).

    :param sent_tokens: the request that did not fit, in the upstream's tokens as far as they are known
    :param asked: the reply that it asks for
    :returns: None where the input is the cause, or may be
    """
    if asked is None:
        return None
    window = profile.window
    told = min(overflow.window_tokens or window.window, window.window)
    learned = window if told == window.window else _shrunk(window, told, 1.0)
    margin = round(profile.policy.margin * learned.window)
    if asked <= reply_reserve(learned, asked, whole=profile.whole_reply, margin=margin):
        return None  # that much was kept free, or will be: it is the input that was counted too small
    size = overflow.requested_tokens or sent_tokens
    if abs(size - asked - sent_tokens) < abs(size - sent_tokens):  # some tell one number for both
        size -= asked
    if not size <= told < size + asked:
        return None
    return LearnedWindow(learned, profile.density, whole_reply=True)


def lessons_in_one(window: ModelWindow, overflow: Overflow, sent_tokens: int) -> tuple[LearnedWindow, LearnedWindow]:
    """For the replay, and to remember, where the model is not calibrated.

    An upstream that counts more for the same text than we do has, in our tokens, a window that is smaller by
    that ratio. One odd request must not shrink the window of all, so no more than ``KEPT_RATIO`` of that is
    remembered.

    :param window: what was believed until now
    :param sent_tokens: the request that did not fit, as counted here
    """
    known, requested = window.window, overflow.requested_tokens or 0
    # The upstream's own number goes before what was learned of it: being told it again must not shrink it again.
    told = overflow.window_tokens or min(sent_tokens or known, known)
    ratio = 1.0
    if requested > sent_tokens > 0:
        ratio = max(sent_tokens / requested, LEAST_RATIO)
    elif overflow.window_tokens is None or told == known:  # it told nothing new, and yet it was too much
        ratio = KEPT_RATIO
    return LearnedWindow(_shrunk(window, told, ratio)), LearnedWindow(_shrunk(window, told, max(ratio, KEPT_RATIO)))


def lessons_apart(
    window: ModelWindow, overflow: Overflow, sent_tokens: int, factor: float
) -> tuple[LearnedWindow, LearnedWindow]:
    """For the replay, and to remember, where the model is calibrated: the window in the upstream's own tokens.

    Of an odd request's density, too, no more than ``KEPT_RATIO`` is remembered, until the first reply tells better.

    :param window: what was believed until now, in the upstream's tokens
    :param sent_tokens: the request that did not fit, as counted here
    :param factor: the upstream's tokens for one of ours, as believed until now
    """
    believed, requested = round(sent_tokens * factor), overflow.requested_tokens or 0
    told, density = overflow.window_tokens, factor
    if requested > believed > 0:
        density = requested / sent_tokens
    elif told in (window.window, window.max_input_tokens):  # it told nothing new, and yet it was too much
        density = factor / KEPT_RATIO
    if told is None:
        learned = _shrunk(window, min(requested or believed or window.window, window.window), KEPT_RATIO)
    else:
        if window.source == "default":  # an assumption may be too small as well
            window = replace(window, max_input_tokens=told, context_window=None)
        learned = _shrunk(window, told, 1.0)
    kept = max(min(density, 1 / KEPT_RATIO), 1.0)
    return LearnedWindow(learned, min(density, 1 / LEAST_RATIO)), LearnedWindow(learned, kept)


def _shrunk(window: ModelWindow, told: int, ratio: float) -> ModelWindow:
    size = max(int(told * ratio), 1)
    source = "api" if window.source == "default" else window.source
    most = min(size, window.max_input_tokens)
    if window.context_window and told <= window.max_input_tokens < window.context_window:
        # A limit on the input alone, such as GPT-5's: the room for the reply stays beside it.
        return replace(window, max_input_tokens=most, source=source)
    return replace(window, max_input_tokens=most, context_window=size, source=source)
