"""The window that an overflow teaches, in the tokens that we count ourselves.

Between ``overflow.py``, which reads the provider's words, and the catalog, which remembers. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.budget import ModelWindow
from proxy.upstream.overflow import Overflow

KEPT_RATIO = 0.8
"""Share of a window that stays after an overflow error, however much denser the upstream's tokens were."""
LEAST_RATIO = 0.25
"""Share of a window that one replay goes down to at most."""


def windows_after(window: ModelWindow, overflow: Overflow, sent_tokens: int) -> tuple[ModelWindow, ModelWindow]:
    """The window for the replay, and the one to remember.

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
    return _shrunk(window, told, ratio), _shrunk(window, told, max(ratio, KEPT_RATIO))


def smaller_of(stated: ModelWindow, learned: ModelWindow) -> ModelWindow:
    """What a person stated, as far as it has not proved too large."""
    return replace(
        stated,
        max_input_tokens=min(stated.max_input_tokens, learned.max_input_tokens),
        context_window=min(stated.window, learned.window),
    )


def _shrunk(window: ModelWindow, told: int, ratio: float) -> ModelWindow:
    size = max(int(told * ratio), 1)
    source = "api" if window.source == "default" else window.source
    most = min(size, window.max_input_tokens)
    if window.context_window and told <= window.max_input_tokens < window.context_window:
        # A limit on the input alone, such as GPT-5's: the room for the reply stays beside it.
        return replace(window, max_input_tokens=most, source=source)
    return replace(window, max_input_tokens=most, context_window=size, source=source)
