"""Knows the phrases of a chat that look like rules and ask for nothing, such as "Keep it up!".

``rules`` leaves them out before it looks for a rule, so that a rule in the same sentence is still found.
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
    | keep\ (?:your\ (?:chin|head|spirits|fingers)|(?:them|it)\ coming|the\ change\W*$|dreaming|shining|rocking)
    | never\ (?:mind|better|heard|say\ (?:never|die)|gonna|thought)\b
    | (?:always\ )?look\ on\ the\ bright | stop\ it(?=\W*$|,)
    | only\ (?:kidding|joking|human|natural)\b
    | no\ (?:big\ deal|rush|hurry|hard\ feelings|pain\b|pun\b|news\ is|more\ questions|sweat|stress|pressure|offen[cs]e
        |kidding|luck|wonder|surprise|regrets|complaints|clue|excuses)
    | don['’]t\ (?:mention\ it(?=\W*$)|sweat|be\ (?:silly|sad|so\ hard|mad|sorry|scared|upset)
        |forget\ to\ (?:have\ fun|smile|breathe|enjoy|rest)
        |let\ (?:it|that|this|them|anyone)\ (?:get|bring|stop|bother|discourage))
    | remember\ (?:when\ (?:we|i)\b|that\ (?:time|trip|day|one)\b|[^?]{1,120}\?$)
    | (?:can|could)\ (?:always|only)\ (?:count|rely|imagine|hope|wonder|guess|dream|try|come|talk\ to|reach)
    | should\ (?:never|always)\ have\ to
    | must\ be\ (?:(?:so|very|really|quite|pretty|such|a|an)\ ){0,2}(?:proud|tired|hard|tough|nice|fun|great
        |excit(?:ed|ing)|happy|thrilled|exhausted|exhausting|difficult|amazing|wonderful|rewarding|stressful|relaxing|fulfilling|awesome
        |cool|beautiful|kidding|joking|nervous|lonely|scary)\b
    | need\ all\ the\ (?:help|luck|support|energy) | make\ sure\ you\ (?:have\ fun|enjoy|take\ care|rest|relax)
    | immer\ (?:noch|wieder|mehr|gerne?|schön|dasselbe|das\ gleiche|mit\ der\ ruhe)\b
    | (?:nie|niemals)\ (?:im\ leben|gehört|gesehen|gedacht|aufgeben)\b
    | toujours\ (?:pareil|un\ plaisir|là|aussi|le\ même|pas|rien|partant)\b
    | jamais\ (?:de\ la\ vie|deux\ sans\ trois|entendu|vu|dit)\b
    | siempre\ (?:igual|es\ un\ placer|lo\ mismo|hay)\b | nunca\ (?:se\ sabe|es\ (?:tarde|demasiado)|había|he|desista)\b
    | mai\ dire\ mai\b | non\ (?:mollare|arrendersi|smettere)\ mai\b
    )""",
    re.VERBOSE,
)


def without_idioms(plain: str) -> str:
    """Return a text without its idioms.

    :param plain: lower-case text after a space
    """
    return _IDIOM.sub(" ", plain)
