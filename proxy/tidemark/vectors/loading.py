"""Loads the vectors of tokens when a worker starts, if any model's recall needs them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidemark.core.recall.meaning import RecallMethod, VectorIndex


def load_vectors(methods: Collection[RecallMethod]) -> Callable[[], VectorIndex] | None:
    """Return what makes an empty index by meaning; None where no model's recall needs one.

    :param methods: of all models
    :raises ModuleNotFoundError: the extra is not installed, which the configuration's loader tells first
    """
    if "embedding" not in methods:
        return None
    from tidemark.vectors.static import StaticVectors

    return StaticVectors().index
