"""Packs the small values that Lua scripts read themselves: references to summaries, and system messages.

They hold hashes and positions and no text, so no cipher seals them (``codec.py``). ``lua/tree.lua`` and
``lua/recall.lua`` state the same layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tidemark.core.conversation.messages import DIGEST_BYTES, digest_of
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.summary import InnerSystems, PrefixSummary, SummaryRecipe

RECIPE_BYTES = 8
"""64 bits distinguish a tenant's few recipes."""
CACHED_RECIPES = 256
"""Digests in the cache: strategies, templates and summarizers are the operator's, and few."""
_FORMAT = b"absorbed"
"""Part of each recipe's digest: summaries from before references named absorbed messages are not used again."""
_COVERED_BYTES = 4
_ABSORBED_FROM = _COVERED_BYTES + DIGEST_BYTES + RECIPE_BYTES
"""Where the absorbed digests begin in a reference. ``tree.lua`` has the same number."""


@lru_cache(maxsize=CACHED_RECIPES)
def recipe_digest(recipe: SummaryRecipe) -> bytes:
    """Return the name of a recipe in keys and references, ``RECIPE_BYTES`` long."""
    return digest_of(_FORMAT, recipe.key.encode())[:RECIPE_BYTES]


def pack_reference(summary: PrefixSummary) -> bytes:
    """Pack a reference to a summary: position (4 bytes, big-endian), prefix, recipe, absorbed digests."""
    return reference(summary.covered, summary.prefix, summary.recipe, summary.absorbed)


def reference(covered: int, prefix: bytes, recipe: SummaryRecipe, absorbed: Sequence[bytes]) -> bytes:
    """Pack a reference to a summary that need not exist yet; a lease states its purpose so.

    :param absorbed: digests of the system messages that the summary absorbs, ``DIGEST_BYTES`` each
    """
    return covered.to_bytes(_COVERED_BYTES, "big") + prefix + recipe_digest(recipe) + b"".join(sorted(absorbed))


def prepared_for(
    lease: bytes, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems
) -> tuple[int, tuple[bytes, ...]]:
    """Return what a summary that is made under a lease covers: messages of ``chain``, and absorbed system messages.

    :returns: 0 and none if the summary is of no use for a request with these system messages
    """
    purpose = lease.partition(b":")[2]
    covered, digests = int.from_bytes(purpose[:_COVERED_BYTES], "big"), purpose[_ABSORBED_FROM:]
    absorbed = tuple(digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES))
    if covered > len(chain) or purpose != reference(covered, chain.at(covered), recipe, absorbed):
        return 0, ()
    return (covered, absorbed) if all(systems.get(digest, covered + 1) <= covered for digest in absorbed) else (0, ())


def pack_systems(systems: InnerSystems) -> bytes:
    """Pack a request's inner system messages as ``recall.lua`` reads them: for each its position, then its digest."""
    return b"".join(position.to_bytes(_COVERED_BYTES, "big") + digest for digest, position in systems.items())
