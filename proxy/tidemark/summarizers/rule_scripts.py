"""Recognizes rules in Arabic, Chinese, Japanese and Russian, whose words the other patterns do not know.

``rules`` asks it for sentences outside ASCII. A polite request for one thing is no rule: a lasting word, a ban or a
negative command is. Encouragement and courtesy is none.
"""

from __future__ import annotations

import re

_ZH_DONE = "使用删改提说发调运执推修添加碰动给找联打安订放让把叫送超写透泄拿寄换拍存传推敲"
"""Signs with which the verb of a Chinese ban begins."""
_CHINESE_OR_JAPANESE = re.compile(
    r"(?:必须|務必|务必|禁止|严禁|不得|切勿|不准|不许|一律|只能|一定(?:要|不能)|任何(?:情况|时候|人都不))"
    r"|(?:绝对|千万|永远|请|也|都|就)(?:不要|别|不能|不可)|(?:请|要|应该?)(?:始终|总是|一直|只)"
    rf"|(?<![要先时特区分级类性个告离])(?:不要|别)再?(?=[{_ZH_DONE}])(?!写成)"
    rf"|(?:^ |[，。；：、])(?:请)?(?:始终|永远)(?=[{_ZH_DONE}])"
    r"|(?:^ |[，：])(?:以后|今后|从现在起|从今天起|从现在开始)(?=[^再见说]{3})"
    r"|只(?:接受|认|吃)"
    r"|(?:最多(?!的)|至多|不能?超过|不能?少于|至少要?)[^，。]{0,6}?[\d一二两三四五六七八九十百]"
    r"|所有[^，。]{1,10}要|每[次个天封条][^，。]{0,8}(?:都要|不要|别)|没有?我的?(?:同意|允许|许可|批准)|未经我"
    r"|用[中英法德日普][文语通]话?(?:回|写|说|答|跟)|叫我(?!怎|一声|去|来|们)|过敏|忌口|吃素|清真|不吃"
    # Japanese
    r"|(?:必ず|常に|いつも|絶対に).{1,60}(?:ください|下さい|こと|しろ|するな|ない[でこ])"
    r"|ないで(?:ください|下さい)|(?:ては|では)(?:いけ|なら)(?:ない|ません)|厳禁"
)
_RUSSIAN = re.compile(
    r"\b(?:всегда|обязательно)\s+(?:\w+[аеёиоуыюя]й|\w+и|\w+[^тшю\W]ь)(?:те)?\b"
    r"|\bникогда\s+не\s+(?:\w+[аеёиоуыюя]й|\w+и|\w+[^тшю\W]ь)(?:те)?\b"
    r"|\bнельзя\s|\bзапрещ|^ (?:пожалуйста,?\s+)?не\s+(?:\w+[аеёиоуыюя]й|\w+[^тшю\W]ь)(?:те)?\b"
)
_ARABIC = re.compile(
    # without the signs of vowels, after a space; it starts with a simple class
    r"\W(?:"
    r"يجب\b(?!\s+ان\s+ا)|لا\s+يجوز|ممنوع|يمنع\b|محظور|من\s+(?:الان|اليوم)\s+(?:فصاعدا|وصاعدا)"
    r"|بعد\s+اليوم\b|[وف]?لا\s[^.،؟]{1,60}\bابدا\b"
    r"|(?:(?<=^ )|(?<=[:،]\s)|(?<=رجاء\s)|(?<=فضلك\s))[وف]?لا\s+ت(?!وجد|زال|كفي|عمل\b|ظهر|فتح|صل\b|نقطع"
    r"|ستطيع|عرف|قلق|نس\b|نسي|خف\b|خافي|حزن|تردد|توقع|هتم|زعل|شغل|كن\b)\w+"
    r"|في\s+كل\s+ما\b|[وف]?لا\s+(?:اريد|نريد|اقبل|نقبل|[اتي]اكل|[اتي]شرب|اسافر|[اتي]تناول)\b"
    r"|اريد\b[^.؟]{1,60}\b(?:فقط|دائما)\b"
    r"|(?:(?<=^ )|(?<=[،:]\s))(?:اكتب|اذكر|اعط\w*)\s+(?:لي\s+)?(?:كل|جميع)\b|لا\s+\w+\s+تجاوز"
    r"|(?:نادني|نادوني|خاطبني)\b"
    r"|(?:(?<=^ )|(?<=[،:]\s))[وف]?(?:اكتب|اجب|ارسل|استخدم|استعمل|ذكر|اسال|تاكد|احرص|ضع"
    r"|اعط)\w*\s[^.؟]{0,60}\bدائما\b"
    r"|(?:(?<=^ )|(?<=[،:]\s))[وف]?(?:اجب|اكتب|رد|تكلم|تحدث|خاطب|استعمل|استخدم)\w*\s[^.،؟]{0,30}\b(?:بال"
    r"|ب)(?:عربية|فصحي|لغة|لهجة|انجليزية)"
    r"|حساسية\b|نباتي|الغلوتين\b|حلالا?\b"
    r")"
    r"|(?:لا\s+(?:اكثر|يزيد|تزيد|يتجاوز|تتجاوز|يقل)|الا\s+تتجاوز|حد\s+(?:ال)?اقصي|علي\s+(?:الاكثر"
    r"|الاقل))[^.،]{0,40}"
)
_NO_RULE = re.compile(
    r"担心|客气|紧张|难过|放弃|着急|生气|灰心|要紧|忘记我|心配|気に(?:し|な)|遠慮|無理(?:を)?し|諦め|あきらめ|ありがと|别说了|别提了"
    r"|волну|пережива|беспоко|груст|сдава|расстраива|унывай|забывай\s+(?:улыб|отдых)|стесня|бойся|бойтесь"
    r"|дума(?:й|йте)\s+об"
)
_QUESTION = re.compile(r"[?？؟]\W*$|[吗呢][？?。]?$|^ 帮我|^ 请?(?:先)?帮")
_SCRIPTS = (
    (re.compile("[\u3040-\u9fff]"), _CHINESE_OR_JAPANESE),
    (re.compile("[\u0600-\u06ff]"), _ARABIC),
    (re.compile("[\u0400-\u04ff]"), _RUSSIAN),
)
"""The signs of a script, and the rules in it; a sentence in Latin letters has none of these signs."""
_ARABIC_SIGN = re.compile("[\u0600-\u06ff]")
_VOWELS = re.compile("[\u064b-\u0652\u0640]")
_LETTERS = str.maketrans("أإآى", "اااي")


def is_foreign_rule(sentence: str) -> bool:
    """Return whether a sentence states a rule in Arabic, Chinese, Japanese or Russian."""
    rules = [rule for sign, rule in _SCRIPTS if sign.search(sentence)]
    if not rules:
        return False
    plain = " " + plain_arabic(sentence.lower())
    is_rule = any(rule.search(plain) for rule in rules)
    return is_rule and not _NO_RULE.search(plain) and not _QUESTION.search(plain)


def plain_arabic(text: str) -> str:
    """Return a text whose Arabic letters have one form each, without the signs of vowels."""
    return _VOWELS.sub("", text).translate(_LETTERS) if _ARABIC_SIGN.search(text) else text
