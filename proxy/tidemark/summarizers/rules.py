"""Recognizes rules: what must, must not or should always be done, and lasting preferences.

The words here are English; ``rule_languages`` knows those of other languages. A rule that is missed remains an ordinary
sentence.

Idioms are phrases of a chat that look like rules and ask for nothing, such as "Keep it up!". They are left out before a
rule is looked for, so that a rule in the same sentence is still found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidemark.core.frozen import frozen
from tidemark.core.phrases import RuleKind
from tidemark.summarizers.labels import LABEL, RULE_LABEL
from tidemark.summarizers.rule_languages import is_foreign_rule, language_rule

_IDIOM = re.compile(
    # It is matched against lower-case text after a space, and starts with a simple class.
    r"""
    \W(?:
      keep\ (?:it\ up|up\ the|going\b|at\ it|on\ (?:going|trying|shining)|smiling|fighting|believing|in\ touch
        |(?:me|us)\ (?:posted|updated))
    | (?:never|don['’]t(?:\ ever)?|do\ not)\ (?:give\ up(?=\W*$|\ on\b|,)|lose\ (?:hope|heart|faith)|beat\ yourself
        |stop\ (?:believing|dreaming|learning|trying|smiling)|too\ late|hesitate|be\ (?:afraid|shy|discouraged)
        |worry|(?:cry|wait\ up|tempt\ me|hold\ your\ breath|try\ this\ at\ home|ask|look\ back
            |(?:rush|fight|resist|regret|overthink|jinx)\ (?:it|this|that)|(?:blame|punish|doubt)\ yourself
            |be\ (?:a\ stranger|too\ hard\ on\ yourself)|take\ (?:it|that|this)\ personally
            |(?:look|think|try)\ too\ hard|ask\ me\ (?:why|how|what|when|where)
            |leave\ me\ hanging|keep\ me\ in\ suspense)(?=\W*$))
    | (?:(?:nobody|no\ one)\ can\ (?:take\ (?:it|that|this)\ away(?:\ from\ you)?|know\ everything)
        |you\ must\ come\ over|keep\ (?:the\ faith|breathing|dancing|laughing|me\ company|warm|safe|well)
        |never\ (?:in\ my\ life|stop\ being\ you|change|fear|again)|stop\ (?:worrying|teasing|crying)
        |no\ (?:harm\ done|worries)|call\ me\ (?:whenever|any\ ?time))(?=\W*$)
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


@frozen
class Wording:
    """A slow pattern, with the words without which it matches nothing; most sentences have none of them."""

    pattern: re.Pattern[str]
    """It is searched in lower-case text after a space."""
    words: Mapping[str, frozenset[str]]
    """Each word with its companions. It needs one of them; a word without companions needs none."""

    @classmethod
    def of(cls, pattern: str, *, words: str) -> Wording:
        """Return the wording of a verbose pattern.

        :param words: entries such as "has: to", each on a line of its own or before a semicolon
        """
        entries = [entry.partition(":") for line in words.strip().split("\n") for entry in line.split(";")]
        companions = {word: frozenset(others.split()) for names, _, others in entries for word in names.split()}
        return cls(re.compile(pattern, re.VERBOSE), companions)

    def may_match(self, words: Sequence[str]) -> bool:
        """Return whether a sentence has the words that the pattern needs."""
        for word in self.words.keys() & words:
            others = self.words[word]
            if not others or not others.isdisjoint(words):
                return True
        return False

    def is_in(self, plain: str, words: Sequence[str]) -> bool:
        """Return whether the pattern matches a sentence.

        :param plain: the sentence in lower case, after a space
        """
        return self.may_match(words) and self.pattern.search(plain) is not None


_RULE_WORDS_TEXT = """
never always must mustn dont don not no only prefer prefers preferred avoid ensure sure forbidden prohibited allergic
allergy allergies celiac coeliac intolerant vegan vegetarian gluten kosher halal answer reply respond please should
shall stop circumstances required require requires remember want wants need needs most times cannot cant nobody cite
everything whenever call stays stay remain remains address throughout capped banned exceptions limits confidential max
maximum tops rather may
"""
_RULE_WORDS = frozenset(_RULE_WORDS_TEXT.split())
_FIRST_WORDS_TEXT = """
keep every each all leave stick ask tell check explain show give take use write send make put quote one when if nothing
anything whatever express state spell format round treat count number label sign warn let consult everywhere do
"""
_FIRST_WORDS = frozenset(_FIRST_WORDS_TEXT.split())
"""Words with which a rule begins, perhaps after "please" or "and"; elsewhere they tell nothing."""
_HAVE = frozenset(["has", "have"])
_WITH_CAN = frozenset(["t", "only", "more", "up", "long", "leave"])
_SIGNS = _RULE_WORDS | {"to", "can", "now"}
"""A word of a rule, or one that is a sign of a rule with another word."""
_VERBS = (
    "use|touch|push|deploy|delete|change|modify|run|send|reveal|execute|share|commit|merge|call|write|answer"
    "|exceed|edit|remove|install|mention|suggest|include|assume|ask|start|make|add|put|store|log|expose|print"
    "|drop|eat|drink|accept|allow|report|reply|respond|speak|skip|disable|enable|overwrite|publish"
    "|upgrade|book|schedule|work|need|alter|contact|email|show|give|let|restart|bring|name|open|quote|invent|promise"
)
_RULE_START = re.compile(
    rf"""
    (?:(?:please|also|and|but|ok|okay|so|oh|note|remember|important|one\ more\ thing|(?:\w+\ ){{1,3}}\w+:)[,:;]?\s+)*
        (?:(?:never|always|do\ not|don['’]t|avoid|prefer|ensure|make\ sure|stop\ \w+|remember|keep\s+\w+)\b
        | only\ (?!one\b|two\b|three\b|an?\b|the\b|thing|problem|question|downside|issue|because|that\b|then\b|\d)
        | no\ (?!(?:te|me|se|sé|lo|la|los|las|le|les|nos|es|son|hay|tienes|puedes|sabes|quiero
        |estás)\b)  # that is Spanish
          (?:[\w-]+\ ){{0,3}}\w+(?:s|ing)(?=\W*$|\W+(?:before|after|in|on|for|from|with|unless|at|to|of|please
              |either)\b|,)
        | no\ (?:\w+\ )?(?!time|fun|word|point|use|harm|reason|space|room|progress|mention|hope|hint|change|sign)\w+
          (?:,\ please|\ (?:in|on|before|after|unless|without)\ (?!sight|earth))
        | one\ \w+\ at\ a\ time\b | (?:use|give|show|write|send|call|make|put|quote)\ [^,;?!]{{1,60}},\ not\b
        | (?:everything|anything|whatever)\ [^;?!]{{1,60}}\b(?:goes|needs|must|has\ to|gets|should)\b
        | (?:when|whenever|every\ time|if)\ [^?!]{{1,80}},\ (?:please\ )?(?:let\ me|don['’]t|always|never)\b
        | not\ (?:before|after|on|more|less|later|until|without)\b | nothing\ (?:\w+er\ than|above|below|before
            |after|over)\b
        | (?:nobody|no\ one|nothing|none\ of\ \w+)\ (?:may|must|should|can|gets?\ to|goes|leaves|(?:{_VERBS})(?:s|es))\b
        | (?:do\ )?(?:{_VERBS}|keep|state|express|round|treat|count)\ [^;?!]{{1,80}}\b(?:rather\ than|never|always
            |nothing\ else|not\ the|not\ in|throughout|everywhere|only\ (?:for|in|with|if|when|after|before|on|at))\b
        | (?:give|write|keep|put|express|quote|state|spell|format)\ (?:me\ )?(?:all|every|each|any)\b
        | (?:explain|show|give|ask|go|take|answer|do)\ [^;?!]{{0,30}}\bone\ (?:\w+\ )?at\ a\ time\b
        | (?:cite|quote|number|label|explain|check|sign|round|show)\ (?:every|each)\b
        | (?:ask|tell|check\ with|warn|let|show|consult)\ me\ (?:know\ )?(?:\w+\ ){{0,2}}before\ (?:you|any
            |making|doing|changing)
        | (?:every|each)\ (?:[\w-]+\ ){{1,4}}(?:gets|needs|must|goes|should|has\ to)\b
        | all\ (?:[\w-]+\ ){{1,4}}(?:need|must|go|should|have\ to|get)\b
        | \w+\ (?:always|never|only)\ (?:in|on|with|before|after|at|by|per)\b | stick\ (?:to|with)\b
        | leave\ [^;?!]{{1,60}}\b(?:alone|untouched|as\ (?:it|they)\ (?:is|are)|out\ of)\b
        | (?:call\ me|address\ me\ as|refer\ to\ me\ as)\ (?!back|when|if|at|on|in|to|tomorrow|tonight|later|a\b
            |an\b|the\b
            |crazy|old|once|again)\w)
    """,
    re.VERBOSE,
)
DEMAND = Wording.of(
    r"""
    \W(?:
        (?:must\b(?!/)|mustn['’]t|shall\ not|no\ more\ than|at\ most\s+(?:\d+|two|three|four|five|six|ten)
        |may\ go\ up\ to\ \W?\d+)\b
    | no\ \w+(?:\ \w+)?\ (?:may|must|should)\b
    | (?:is|are)\ (?:strictly\ |not\ |absolutely\ )?(?:forbidden|prohibited|allowed\ to|required)\b
    | (?:should|can|may|shall)\s+(?:never|not|only|always)\b(?!\shave)
    | (?:i|we)\ can\ (?:go|pay|spend|stretch)\b[^,;:.]{0,20}\bup\ to\ \W?\d
    | (?:cannot|can['’]t|couldn['’]t|don['’]t|not)\s[^,;:.]{0,40}\bmore\ than\b
    | (?:cannot|can['’]t|mustn['’]t)\ (?:have|eat|take|drink|tolerate)\ (?!it\b|this\b|that\b|any\ ?more|off\b)\w
    | (?<!\Wi\W)(?<!\Wwe\W)(?<!\Wyou\W)(?<!\Whe\W)(?<!\Wshe\W)(?<!\Wthey\W)(?<!\Wwho\W)(?<!\Wthat\W)
        (?:has|have)\ to\ (?:(?<!\Wit\Whas\ to\ )be|stay|have|go|come|fit|end|start|contain|match|run|use|include|remain
        |work|carry|show|pass|arrive|finish)\b
    | can(?:no|['’])t\ be\ (?:\w+er|more|less)\ than\b | can(?:no|['’])t\ go\ (?:below|above|over|under|beyond)\b
    | no\ exceptions\b | \d\ \w+\ (?:at\ most|max(?:imum)?|tops|or\ fewer|or\ less)\b
    | (?:is|are)\ (?:banned|off[- ]limits|out\ of\ bounds|strictly\ confidential)\b
    | (?:stays?|remains?)\ (?:anonymous|confidential|private|secret|between\ us)\b
    | (?:goes|go)\ (?:through|to|via|into)\ [^,;.]{1,30}\b(?:only|first|always)\b
    | needs?\ to\ (?:be\ \w+(?:ed|en)|stay|remain)\b | capped\ at\ \W?\d
    | (?:needs?|requires?)\ (?:\w+['’]s?\ |my\ |our\ |an?\ |written\ )(?:approval|sign-?off|permission|review
        |okay|consent)
    | (?:stays?|remains?)\ (?:exactly\ )?(?:as\ (?:it|they)\ (?:is|are)|untouched|unchanged|read-only)\b
    | (?:you|they)\ (?:can|may)\ [^;:]{1,80}\b(?:but\ only|only\ (?:if|when|after|before|on|in|with|for|between)
        |as\ long\ as|just\ (?:leave|not|don['’]t))\b
    )
    """,
    words="""
    must; mustn; max; maximum; tops; fewer; less; forbidden; prohibited; required; exceptions; banned; limits; bounds
    confidential; stay; stays; remain; remains; capped; need; needs; require; requires
    shall: not never only always; no: more may should; most: at; allowed: to; never: should can may shall
    only: should can may shall goes go; always: should can may shall goes go; not: should can may shall more
    up: can may; more: than; than: can cannot; have: to cannot can; has: to; eat: cannot can; take: cannot can
    drink: cannot can; tolerate: cannot can; go: below above over under beyond first; goes: first
    can: as just; may: as just
    """,
)
"""Says what something has to be or do. A rule in the user's own words, and an ordinary line in a pasted document."""
DIRECTIVE = Wording.of(
    rf"""
    \W(?:
      (?:under\ (?:no|any)\ circumstances|from\ now\ on|at\ all\ times)\b
    | you\s+(?:must|mustn['’]t|shall|(?:should|can|may)\s+(?:never|not|only|always))\b
    | please\s+(?:always\s+)?(?:answer|reply|respond|speak|address|format|keep|use|write)\s
        (?!me\b|us\b|an?\b|the\b|this\b|that\b|these\b|those\b|it\b|them\b|him\b|her\b|to\b|down\b|up\b|back\b|one\b
        |two\b|three\b|\d|my\b|your\b|our\b)
    | please\ call\ me\ (?!back|when|if|at|on|in)\w
    | please\s[^?]{{1,80}}\b(?:every\ time|each\ time|whenever|in\ everything|from\ here\ on|in\ future)\b
    | (?:answer|reply|respond|write|speak)\s+(?:\w+\s+){{0,3}}in\s+(?:english|german|french|spanish|italian
        |portuguese|chinese|arabic|dutch|\w+(?:ish|ese)
        |plain|short|full|bullet|simple)\b
    | (?:i|we|user|they)(?:['’]d)?\s+(?:(?:would|strongly|really|always|also)\s+)*prefers?\b
        (?!\sto\s|\sthe\s|\sthat\s|\sthis\s|\sit\b|\snot\b)
    | (?:i|we)\ don['’]t\ want\ (?:any|you\ to|to\ see|to\ hear|anyone|anybody)\b | i['’]d\ rather\ you\b
    | (?:i|we|user)\s+(?:want|need|expect|require)s?\s+(?:you\s+to|all|every|everything|only|no)\b
    | (?:i|we)\ only\ (?:want|need|accept|use|take|work|buy|eat|cite)\b
    | (?<=[,;:]\s)(?:and\ |but\ )?never\ \w
    | (?<=\Wso\s)(?:please\ )?(?:no\ (?!need|idea|luck|worr|problem|rush|one|wonder)\w|don['’]t|never|only)\b
    | please\ no\ \w
    | (?:never|always|don['’]t|do\ not|only)\s+(?:ever\s+)?(?:{_VERBS})\b
    | (?<=[,:;]\s)no\ (?:new|more|other|external)\ \w+s\b
    | no\ [^,;:.?!]{{1,60}}\ without\ (?:my|our|explicit|prior|written|asking|an?\ )
    | allerg(?:ic|y|ies)\ to\b | \w+\ allergy\b | co?eliac\b | (?:lactose|gluten)[ -](?:intolerant|free)\b
    | (?:is|am|are|be|['’]s|['’]m|['’]re|both|strictly|fully)\ (?:a\ |both\ )?(?:vegan|vegetarian|kosher|halal)s?\b
    )
    """,
    words="""
    circumstances; times; must; mustn; shall; please
    prefer; prefers; never; always; only; don; rather; allergic; allergy
    allergies; celiac; coeliac; gluten; lactose; intolerant; vegan; vegans; vegetarian; vegetarians; kosher; koshers
    halal; halals
    now: from; not: should can may do; answer: in; reply: in; respond: in; write: in; speak: in
    want: to all every everything only no; wants: to all every everything only no; need: to all every everything only no
    needs: to all every everything only no; expect: to all every everything only no
    expects: to all every everything only no; require: to all every everything only no
    requires: to all every everything only no; no: so new more other external without
    """,
)
"""A rule that addresses the assistant.

This pattern and the next ones are matched against lower-case text after a space, and start with a simple class. So the
search skips from word to word; a pattern that ignores case, or starts with a boundary, stops at every letter."""
_NO_RULE = re.compile(
    r"\W(?:don['’]t (?:know|think|mind|understand|worry|believe|care|feel|see|you|get|have to|really"
    r"|bother|forget"
    r"|tell me (?:you|it|that|he|she|they)|make me (?:cry|laugh|blush)|remind me|laugh|panic|need|like"
    r"|want to (?!see|hear))\b"
    r"|(?:i|he|she|they|we|it)(?:['’]ve|['’]d|['’]ll| have| had| has| will)? (?:always|never|only) "
    r"(?:been|had|seen|thought|knew|heard|felt|got|did|let|\w+ed|\w+s)\b|(?:he|she|it|they|people|i) always\b"
    r"|(?:he|she|it|they|people) never\b|(?<=^\W)(?:always|never) (?:an?|the|been|again|thought|something|seen"
    r"|had|ends|fails)\b"
    r"|(?:could|would|might|is|are|was|were|has|have|had) (?:always|never|only)\b|i must\b|we must (?:talk|catch"
    r"|meet|go)\b"
    r"|(?:my|his|her|our) (?:\w+ ){1,2}(?:has|have) to (?:go|come|work|run|finish|start)\b"
    r"|can['’]t wait\b|must (?:have|say|admit|feel)\b|(?:that|there|it|this|i|he|she|they|someone) must be\b"
    r"|not only\b|if only\b|only the\b"
    r"|don['’]t [^,;:.]{1,40}\b(?:yet|right now|just now)\b|not in the mood\b|(?<=^\W)no (?:problem|worries|way"
    r"|idea|doubt|thanks|one|need|clue|news|reply|answer|response|luck"
    r"|sign|trace|issue|error|result|change|plan)|no [^,;:.]{1,40}\b(?:yet|so far|found|failed)\b)"
)
_ONE_OFF = re.compile(
    r"\W(?:(?:please|now|and|then|can you|could you)\W+)+(?:please )?(?:write|draft|send|show|give|prepare|make"
    r"|create|list"
    r"|explain|tell|summari[sz]e|check|look|read|run|fix|add|open)\b(?: (?:me|us|it|this|that|the|an?|up|at|out|one|two"
    r"|three|\d+|my|our)\b)"
)
"""A request for one thing; its limits hold for that thing only."""
_DOCUMENT_CHARS, _DOCUMENT_DEMANDS = 1500, 3
"""A message of more characters is a pasted text if it has more demands than this."""
MOST_DEMANDS = 8
"""A message of any length is a pasted text if it has more demands. Nobody writes so many at once in their own words."""


def is_rule(sentence: str, words: Sequence[str]) -> bool:
    """Return whether a sentence says what must, must not or should always be done, or a lasting preference."""
    return rule_kind(sentence, words) is not None


def rule_kind(sentence: str, words: Sequence[str]) -> RuleKind | None:
    """Return the kind of rule that a sentence is; None if it is no rule."""
    label = LABEL.match(sentence) if ":" in sentence else None
    if label and RULE_LABEL.match(sentence):
        return "directive"
    if sentence.endswith("?") or (len(words) < 2 and sentence.isascii()):
        return None
    if not sentence.isascii() and is_foreign_rule(sentence):
        return "directive"
    body = sentence[label.end() :] if label else sentence
    plain = " " + body.lower()
    if _may_rule(words):
        kind = _kind_of(plain, words)
        if kind is not None and not _NO_RULE.search(literal := without_idioms(plain)):
            kind = kind if literal == plain else _kind_of(literal, words)
            if kind is not None:
                return kind
    return language_rule(plain, words)


def _may_rule(words: Sequence[str]) -> bool:
    """Return whether a sentence has a word by which an English rule is known; most have none."""
    signs = _SIGNS.intersection(words)
    return (
        not _RULE_WORDS.isdisjoint(signs)
        or not _FIRST_WORDS.isdisjoint(words[:3])
        or ("to" in signs and not _HAVE.isdisjoint(words))
        or ("can" in signs and not _WITH_CAN.isdisjoint(words))
        or ("now" in signs and "from" in words)
    )


def _kind_of(plain: str, words: Sequence[str]) -> RuleKind | None:
    """Return the kind of rule by its wording alone.

    :param plain: lower-case text after a space
    :param words: the words of the sentence
    """
    if _RULE_START.match(plain, 1) or DIRECTIVE.is_in(plain, words):
        return "directive"
    return "demand" if DEMAND.is_in(plain, words) and not _ONE_OFF.search(plain) else None


def is_document(characters: int, demands: int) -> bool:
    """Return whether a message is a pasted text, such as a list of requirements.

    The demands of a pasted text are its content. A user's own rules are few, or address the assistant.

    :param characters: the length of the message
    :param demands: how many demands it has
    """
    return demands > (_DOCUMENT_DEMANDS if characters > _DOCUMENT_CHARS else MOST_DEMANDS)


def without_idioms(plain: str) -> str:
    """Return a text without its idioms.

    :param plain: lower-case text after a space
    """
    return _IDIOM.sub(" ", plain)
