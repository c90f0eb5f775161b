"""Knows the phrases of a chat that look like rules and ask for nothing, such as "Keep it up!".

``signals`` leaves them out before it looks for a rule, so that a rule in the same sentence is still found.
"""

from __future__ import annotations

import re

_IDIOM = re.compile(
    # It is matched against lower-case text after a space, and starts with a simple class.
    r"""
    \W(?:
      keep\ (?:it\ up|up\ the|going\b|at\ it|on\ (?:going|trying|shining)|smiling|fighting|believing|in\ touch
        |(?:me|us)\ (?:posted|updated))
    | (?:never|don['’]t(?:\ ever)?|do\ not)\ (?:give\ up(?=\W*$|\ on\b|,)|lose\ (?:hope|heart|faith)|beat\ yourself
        |stop\ (?:believing|dreaming|learning|trying|smiling)|too\ late|hesitate|be\ (?:afraid|shy|discouraged)
        |worry)
    | (?:always|never)\ (?:here\ for|there\ for|happy\ to|a\ (?:pleasure|joy)|great\ to|nice\ to|good\ to|fun\ to)
    | always\ (?:follow\ your|believe\ in|be\ yourself|remember\ that\ you\ are)
    | (?:make\ sure\ to|remember\ to|please)\ (?:have\ fun|enjoy|take\ care|rest|relax|treat\ yourself)
    | stop\ by\b | only\ time\ will\ tell | no\ matter\ what
    )""",
    re.VERBOSE,
)


def without_idioms(plain: str) -> str:
    """Return a text without its idioms.

    :param plain: lower-case text after a space
    """
    return _IDIOM.sub(" ", plain)
