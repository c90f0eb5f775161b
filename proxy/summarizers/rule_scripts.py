"""Recognizes rules in Chinese, Japanese and Russian, whose words the English patterns do not know.

``signals`` asks it for sentences outside ASCII. A polite request for one thing is no rule: a lasting word, a ban or a
negative command is. Encouragement and courtesy is none.
"""

from __future__ import annotations

import re

_RULE = re.compile(
    # Chinese
    r"(?:必须|務必|务必|禁止|严禁|不得|切勿|不准|一律|只能用)"
    r"|(?:绝对|千万|永远|请)(?:不要|别|不能|不可)|(?:请|要|应该?)(?:始终|总是|一直|只)"
    r"|^请?(?:不要|始终|永远)(?=[使用删改提说写发调运执推修添加碰动])|^请?别(?=[使用删改])"
    # Japanese
    r"|(?:必ず|常に|いつも|絶対に).{1,60}(?:ください|下さい|こと|しろ|するな|ない[でこ])"
    r"|ないで(?:ください|下さい)|(?:ては|では)(?:いけ|なら)(?:ない|ません)|厳禁"
    # Russian, in lower case
    r"|\b(?:всегда|обязательно)\s+(?:\w+[аеёиоуыюя]й|\w+и|\w+[^тшю\W]ь)(?:те)?\b"
    r"|\bникогда\s+не\s+(?:\w+[аеёиоуыюя]й|\w+и|\w+[^тшю\W]ь)(?:те)?\b"
    r"|\bнельзя\s|\bзапрещ|^(?:пожалуйста,?\s+)?не\s+(?:\w+[аеёиоуыюя]й|\w+[^тшю\W]ь)(?:те)?\b"
)
_COURTESY = re.compile(
    r"担心|客气|紧张|难过|放弃|着急|生气|灰心|要紧|忘记我|心配|気に(?:し|な)|遠慮|無理(?:を)?し|諦め|あきらめ|ありがと"
    r"|волну|пережива|беспоко|груст|сдава|расстраива|унывай|забывай\s+(?:улыб|отдых)|стесня|бойся|бойтесь"
    r"|дума(?:й|йте)\s+об"
)


def is_foreign_rule(sentence: str) -> bool:
    """Return whether a sentence states a rule in Chinese, Japanese or Russian."""
    plain = sentence.lower()
    return bool(_RULE.search(plain)) and not _COURTESY.search(plain) and not plain.endswith(("?", "？"))
