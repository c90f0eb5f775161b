"""Recognizes rules in German, French, Spanish, Portuguese and Italian, and in Arabic, Chinese, Japanese and Russian.

``rules`` asks it for sentences outside ASCII, and for those with a word that rules often have. A sentence is a rule if
it has a ban, a lasting word beside a command, an obligation of a thing, a limit, a form of address, or what somebody
must not eat. These are no rules: what somebody must do ("Ich muss los.", "Je dois partir."), what was ("hat nie",
"siempre ha"), encouragement, courtesy, and a polite request for one thing.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tidemark.core.frozen import frozen
from tidemark.core.phrases import RuleKind

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


@frozen
class _Language:
    """How one language words its rules; the patterns are matched against lower-case text after a space."""

    words: frozenset[str]
    """Each rule has one of these words."""
    opening: re.Pattern[str]
    """How a rule begins."""
    anywhere: re.Pattern[str]
    """What tells of a rule at any place of the sentence."""
    no_rule: re.Pattern[str]
    """Phrases that only sound like a rule."""


def _language(words: str, opening: str, anywhere: str, no_rule: str) -> _Language:
    """Return a language; a search starts with a simple class, so that it skips from word to word."""
    texts = (rf"^\s(?:{opening})", rf"\W(?:{anywhere})", rf"\W(?:{no_rule})")
    patterns = [re.compile(text, re.VERBOSE) for text in texts]
    return _Language(frozenset(words.split()), *patterns)


_LABEL = r"[^\W\d]+(?:\s\w+){0,3}\s?:"
"""Words before the rule, such as "Noch eine Regel:"."""
_GERMAN = _language(
    """niemals nie immer stets nur kein keine keinen keiner keinem keinesfalls darf dürfen bitte sofort künftig jetzt
    grundsätzlich höchstens maximal spätestens muss müssen soll sollen niemand nichts nicht ausschließlich duzen duze
    siezen sieze sprich nenn nennen allergisch allergie vegan vegetarisch vegetarier glutenfrei zöliakie verboten tabu
    antworte antworten ohne""",
    rf"""
    (?:(?:und|aber|also|ach|so|ok|okay|bitte|wichtig|außerdem|{_LABEL})[,:;]?\s+){{0,3}}(?:
        niemals\s | nie\s(?!wieder|mehr) | keine?[nrm]?\s\w | ausschließlich\s
        | nur\s(?:an|auf|in|im|mit|nach|vor|von|zwischen|per|über|wenn)\s | \w+\snur\s(?:an|auf|mit|nach|vor|per
            |zwischen)\s
        | \w+\simmer\s\w+[.,!] | immer\s[^.;:!?]{{3,80}}en\W*$ | niemand\s(?:darf|soll|fasst|bekommt)\b
        | (?:\w{{3,}}e|\w+en\ssie|gib|nimm|sprich|lies|lass|mach|schreib|halt|frag|sag|zeig|nenn|lösch|ruf)
          (?<!eine)(?<!\bhabe)(?<!würde)(?<!wollte)\s
          (?:(?:sie|mir|mich|uns|bitte|die|den|das|der|alle|alles|es|ihn|dabei|im|bei)\s(?:\w+\s)?){{0,2}}
          (?:nie|niemals|immer|stets|ausschließlich|grundsätzlich)\b)
    """,
    r"""
    (?:darf|dürfen)\b[^:;]{0,120}\b(?:nicht|nie|niemals|kein\w{0,2}|nichts|niemand\w{0,2}|nur|höchstens
        |maximal|ausschließlich)\b
    | (?:kein\w{0,2}|nichts|niemand|nie|niemals|nur|höchstens)\b[^:;]{0,80}\b(?:darf|dürfen)\b
    | (?<!ich\s)(?<!wir\s)(?<!\bes\s)(?:muss|müssen)\s(?!wohl|doch|ja\b)[^:;]{1,120}\s(?:sein|bleiben|werden|enthalten
        |stehen|freigeben|genehmigen|unterschreiben|zustimmen|prüfen|passen|funktionieren|enden|beginnen)\W*$
    | (?:soll|sollen)\b[^:;]{0,80}\b(?:nicht|nie|niemals|kein\w{0,2}|nur|immer)\b
    | bitte\s(?:(?:alles|stets|nur|immer)\s(?:auf|im|in|an|per)\s\w | (?:immer|stets|nie|niemals|keine[nrm]?)\s\w
        | auf\s(?:deutsch|englisch|französisch|spanisch)\b)
    | bitte\s(?:nur\s(?!kurz|noch|mal|so\b|eine?n?\b)\w|erst\s(?:ab|nach|um|wenn)\b)
    | (?:(?<=^\s)|(?<=[,:]\s))alles[^;:.!?]{1,80}\bmuss\b
    | (?:kann|können)\s(?:\w+\s)?nur\s(?!hoffen|sagen|raten|staunen) | auf\skeinen\sfall\b | keinesfalls\b
    | unter\skeinen\sumständen\b
    | ohne\s(?:mein|unser|vorherig|schriftlich|ausdrücklich)\w*\s(?:zustimmung|freigabe|erlaubnis|genehmigung|okay|ok
        |einwilligung|rücksprache|unterschrift)
    | ab\s(?:sofort|jetzt)\b | von\s(?:jetzt|nun|heute)\san\b | künftig\b
    | (?<=[,;:–-]\s)(?:und\s|aber\s|sondern\s)?(?:nie|niemals)\s\w
    | (?<=[,;]\s)(?:aber|und|doch)\snur\s(?:i[nm]|mit|wenn
        |nach|vor|zwischen|bis|a[nm]|auf|von|per|für|über)\s
    | (?:ich|wir)\s(?:möchte|will|wollen|möchten)\s(?:\w+\s)?keine\w?\s\w | gehör(?:t|en)\snicht\s(?:in|zu|auf|an)
    | mehr\sals\s\W?\d[^:;]{0,60}\bnicht\b | nur\b[^:;]{0,40}\berreichbar
    | (?:duz|siez)(?:en?|t)\s(?:sie\s)?(?:mich|uns)\b | (?:sprich|nenn|nennen\ssie|sprechen\ssie)\smich\b
    | antworten?\s(?:\w+\s){0,2}auf\s\w | verboten\b | tabu\b
    | (?:ist|bin|sind|isst|essen)\s[^.;:]{0,40}\b(?:allergisch|vegan|vegetari|glutenfrei) | allergie\b
    | zöliakie | (?:höchstens|maximal|spätestens)\s(?:\w+\s){0,2}\W?\d | nicht\s(?:mehr|länger)\sals\s\d
    """,
    r"""
    wahr\ssein | aufgeben\b
    | keine?n?\s(?:ahnung|problem|sorge|eile|lust|zeit|idee|wunder|frage|hektik
        |panik|stress|angst|thema
        |scherz|chance|antwort|rückmeldung|ding|mensch|fehler|neuigkeit|ursache)
    | immer\s(?:noch|wieder|mehr|gern|schön) | (?<=^\s)nie\s(?:im|ge) | man\s(?:gar|ja)\snicht\b | eigentlich\b
    | (?:hat|hatte|hatten|habe|haben|war|waren|wurde)\b[^,;]*\b(?:höchstens|maximal|spätestens|auf\skeinen|keine|soll)
    """,
)
_FRENCH = _language(
    """jamais toujours doit doivent faut pas plus rien que aucun aucune personne désormais dorénavant maintenant chaque
    partout uniquement exclusivement tutoie tutoyez vouvoie vouvoyez appelle appelez réponds répondez demande demandez
    préviens interdit interdite interdiction sans allergique allergie intolérante intolérant végétarien végétarienne
    végétariens végane cœliaque coeliaque halal casher maximum seulement""",
    rf"""
    (?:(?:et|mais|bon|donc|alors|ah|enfin|oui|non|{_LABEL})[,:;]?\s+){{0,3}}(?:
        (?:ne\s|n['’])\s?(?:(?:me|m['’]|le|la|les|lui|leur|y|en|nous)\s?)?\w+(?:ez|e|s|er|ir|re)\s
          (?:\w+\s)?(?:jamais|pas|plus|rien|aucune?)\b
        | (?:ne\s(?:jamais|pas|plus)|toujours)\s\w+(?:er|ir|re)\b | jamais\s\w | pas\s(?:de\s|d['’])
        | aucune?\s\w[^;:.!?]{{0,80}}\b(?:ne|sans|après|avant|hors)\b | rien\sne\s | personne\sne\s(?:doit|peut|touche)
        | \w{{2,}}(?:ez|e|s)(?:[-\s]moi|[-\s]nous|-l\w+)?\s(?:bien\s)?(?:toujours|uniquement|exclusivement|partout)\b
          (?<!c’est\stoujours)(?<!c'est\stoujours)
        | \w{{2,}}ez\s[^;:.!?]{{0,60}}\b(?:toujours|chaque|surtout\spas|jamais|pas\s(?:de|d['’]))
        | (?:appelle|appelez)[-\s]moi\s(?!quand|si|demain|ce|cet|à|dès|plus|vers|en|pour|lundi|mardi)\w
        | (?:demande|demandez|préviens|prévenez|consulte|consultez)[-\s]moi\s(?:toujours\s)?avant
        | (?:l['’]|(?:les?|la|chaque|tout|toute|tous|toutes|aucune?|mes|nos|notre|votre|vos|ce|cette|ces)\s)
          [^;:.!?]{{0,100}}\b(?:doit|doivent)\s(?!encore|bien|sûrement|sans\sdoute))
    """,
    r"""
    ne\s(?:peut|peuvent)\spas\s(?:être|avoir|dépasser|sortir|entrer|manger|boire|rester|aller|figurer|quitter)\b
    | ne\s(?:doit|doivent|devez)\s(?:\w+\s)?(?:en\saucun\scas|jamais|pas|plus|que|rien|\w+\snulle\spart)\b
    | il\sfaut\s(?:que\s(?!je\b)|toujours|absolument|impérativement)
    | il\sne\sfaut\s(?:surtout\s)?(?:pas|jamais)\b | ne\s(?:peut|peuvent)\s(?:en\saucun\scas|jamais)\b
    | ne\s(?:mange|mangent|boit|boivent|supporte
    |supportent|digère)\s(?:pas|jamais|plus)\b
    | on\s(?:ne\s|n['’])(?!sait|est|a\b|avait)\w+\s(?:jamais|que)\b
    | je\sne\sveux\s(?:pas|plus|aucune?)\s(?:de\b|d['’]|qu|dépasser|voir)
    | je\sveux\s(?:toujours|uniquement|seulement)\b | se\s(?:fait|font)\stoujours\b | surtout\spas\b | désormais\b
    | dorénavant\b | à\spartir\sde\smaintenant\b | (?<=[,;:]\s)(?:et\s|mais\s)?jamais\s\w
    | mais\s(?:seulement
        |uniquement)\s(?:en|si|avec|après|avant|pour|quand|le|la|les)\b
    | sans\s(?:mon|ma|notre)\s(?:accord|validation|autorisation|permission|feu\svert)\b
    | (?:tutoie|tutoyez|vouvoie|vouvoyez)[-\s](?:moi|nous)\b | répond(?:s|ez)(?:[-\s]\w+){0,2}\sen\s\w
    | interdi(?:t|te|ts|tes|ction)\b | allergies?\s(?:à|au)
    | (?:est|suis|sommes|sont|êtes|être)\s(?:\w+\s)?(?:allergique|intoléran|végétari|végan|c(?:œ|oe)liaque)
    | (?:pas\splus\sde\s(?:\d|une?|deux|trois|quatre|cinq|six|dix)\b | au\s(?:maximum
            |plus)(?:\stard)?\s(?:\w+\s){0,2}\d)
    """,
    r"""
    pas\s(?:de\s|d['’])(?:problème|souci|inquiétude|panique|chance|nouvelle|réponse|quoi|doute|bol|stress|mal|blague
        |raison|trace|retour)
    | aucune?\s(?:idée|problème|souci|doute|nouvelles?\W*$|réponse|chance|erreur|importance)
    | pour\sl['’]instant\b | il\sne\sfaut\spas\ss['’] | il\sfaut\s(?:dire|avouer|croire|voir)\b
    | doit\s(?:y\s)?avoir\b | toujours\s(?:pas|aussi|là|rien|pareil|le\smême|un\splaisir)
    | jamais\s(?:vu|eu|pensé|entendu|su|été
        |de\sla\svie|deux)\b
    | (?<=^\s)(?:ne|n['’])\s?(?:t['’]|vous\s|oubli|quitte|bouge|ris|sois|soyez)
    """,
)
_NO_ES = (
    "us|toqu|borr|mand|envi|habl|llam|mencion|cambi|modifiqu|elimin|ejecut|public|publiqu|compart|escrib|pong|hag|pas"
    "|mezcl|incluy|añad|agregu|quit|reserv|compr|sub|propong|sugier|recomiend|dej|abr|met|saqu|acept|utilic|respond"
    "|instal|despliegu|contact|firm|cit|repit|traduzc|invit|organic|program"
)
_DO_ES = (
    "usa|responde|contesta|pide|avisa|avísame|pregunta|pregúntame|escribe|pon|incluye|revisa|confirma|ejecuta"
    "|habla|manda"
    "|envía|guarda|comprueba|verifica|cita|da|dame|haz|deja|añade|copia|muestra|indica|redondea|llama|trata|compila"
    "|prueba|documenta|instala|formatea|valida|traduce|resume|firma|anota"
)
_CAN_ES = (
    "(?:pasar|superar|exceder|entrar|salir|llevar|aparecer|tocar|usar|durar|costar|comer|faltar|subir|bajar"
    "|caminar|beber"
    "|tomar|empezar|acabar|terminar)"
)
"""What one may not do; that a machine cannot connect is no rule."""
_SPANISH = _language(
    """nunca jamás siempre nada nadie debe deben tiene tienen no solo sólo únicamente máximo mucho ningún ninguna
    prefiero ahora adelante prohibido prohibida prohibidos alérgico alérgica alergia intolerante celíaco
    celíaca vegano vegana vegetariano vegetariana gluten responde respóndeme háblame llámame tutéame trátame
    permiso quiero""",
    rf"""
    (?:(?:y|pero|bueno|pues|ah|eso\ssí|otra\scosa|importante|por\sfavor|{_LABEL})[,:;]?\s+){{0,3}}(?:
        (?:nunca|jamás|no)\s(?:(?:me|te|le|les|lo|la|los|las|nos|se)\s){{0,2}}
          (?:{_NO_ES})(?:es|e|en|as|a|an|éis|áis)\b(?<!\sllama)(?<!\smanda)(?<!\scambia)(?<!\spasa)
        | (?:nunca|jamás)\s(?:\w+[aei]r\b|en\s|antes|después|más\sde|con\s|sin\s) | nada\sde\s
        | ning[uú]na?\s\w[^;:.!?]{{0,80}}\b(?:puede|debe|sin|fuera|antes|después|empezamos|entra|sale)\b
        | nadie\s(?:toca|puede|debe|entra|usa|cambia)\b | (?:llámame|háblame)\s(?!cuando|si|mañana|luego|al?\b)\w
        | (?:el|la|los|las|lo|todo|toda|todos|todas|cada|ningún|ninguna|nuestr[oa]s?|est[aeo]s?|estas)\s
          [^;:.!?]{{0,80}}\b(?:deben?|tienen?\sque)\b
        | (?:antes\sde|siempre\sque)\s[^;.!?]{{1,60}},\s(?:pregúntame|avísame|consúltame|pídeme|avisa|pregunta)\b
        | [^;:.!?]{{0,80}}\bno\s(?:se\s)?pued[ae]n?\s{_CAN_ES}\b
        | solo\s(?!tenemos|quedamos|somos|estamos|hemos|vamos)(?:\w+mos|con|después|antes|a\spartir|quiero|acepto|se)\b
        | (?:{_DO_ES})\s(?:[^,;:.!?]{{1,30}}\s)?siempre\b | siempre\s(?:{_DO_ES})\b | siempre\s(?:en|con)\s)
    """,
    r"""
    no\s(?:se\s)?pued[ae]n?\s[^;:.!?]{1,60}\b(?:más\sde|sin)\b | tienen?\sque\sser\b
    | (?<=[,;:]\s)(?:y\s)?siempre\s(?:con|en|por|de)\b | quiero\sque\s(?:todo|toda|todos|siempre|nada|cada)\b
    | \d[\d.,]*+\s?(?:\w{1,20}|€)?\s(?:como\s(?:máximo|mucho))\b | no\sse\s(?:debe|permite|acepta)n?\b
    | (?:responde|respóndeme)(?:\s\w+){0,2}\sen\s\w | prefiero\s(?:siempre|que)\b
    | no\squiero\s(?:que|nada|ning|ver|más|\w+s\b) | (?:a\spartir\sde|desde)\sahora\b | de\sahora\sen\sadelante\b
    | (?<=[,;:]\s)(?:y\s|pero\s)?(?:nunca|jamás)\s\w | y\snunca\s(?:antes|después|más|en|con|sin)\b
    | pero\ss[oó]lo\s(?:en|con|si|de|después|antes|cuando|hasta|por|para|a\spartir)\b
    | sin\smi\s(?:permiso|aprobación|visto\sbueno|autorización|consentimiento)\b | tutéame\b | trátame\sde\b
    | prohibid[oa]s?\b | (?:es|soy|somos|son|ser)\s(?:\w+\s)?(?:alérgi|intoleran|cel[ií]ac|vegan|vegetarian)
    | alergia\sa
    | (?:no\smás\sde|como\s(?:máximo|mucho)|máximo(?:\s(?:de|son|es))?|a\smás\stardar)\s(?:\w+\s){0,2}\W?\w*\d
    | (?<=^\s)no\smás\sde\s
    """,
    r"""
    nada\sde\s(?:nada|eso|esto|lo|ello|aquello)\b | ning[uú]na?\s(?:idea|problema|duda|noticia|prisa)
    | no\ste\s(?:preocupes|rías|enfades|asustes|pases) | no\sme\s(?:digas|hagas\s(?:reír|llorar))
    | tienen?\sque\sver\b | no\spuede\sser\W*\Z | no\stiene\sque\b
    | (?<=^\s)(?:eso\s
        |esto\s)?tienen?\sque\sser\b
    | debe\sde\b | no\spuede\smás\b
    """,
)
_NO_PT = (
    "us|toqu|alter|modifiqu|apagu|exclu|envi|adicion|remov|execut|instal|compartilh|partilh|revel|escrev|mud|mencion"
    "|mex|fal|cham|coloqu|ponh|faç|mand|inclu|marqu|agend|publiqu|contat|contact|ligu|sugir|proponh|acrescent|cit"
    "|reserv|compr|aceit|utiliz|deix|mistur|pass|contrat"
)
_DO_PT = (
    "use|usa|responda|responde|peça|avise|avisa|pergunte|pergunta|escreva|escreve|ponha|inclua|revise|confirme|execute"
    "|fale|mande|envie|guarde|verifique|cite|dê|faça|deixe|adicione|copie|mostre|indique|chame|trate|mantenha|coloque"
)
_CAN_PT = (
    r"(?:passar|ultrapassar|exceder|entrar|sair|ser\s\w+d[oa]s?|levar|aparecer|tocar|usar|durar|custar|comer"
    r"|faltar|subir"
    "|descer|beber|tomar|começar|acabar|terminar)"
)
_PORTUGUESE = _language(
    """nunca jamais nada ninguém sempre deve devem tem têm precisa precisam não só somente apenas agora diante frente
    nenhum nenhuma proibido proibida alérgica alérgico alergia celíaca celíaco intolerante vegano vegana vegetariano
    vegetariana glúten prefiro responda responde máximo aprovação autorização""",
    rf"""
    (?:(?:e|mas|bom|então|ah|olha|importante|outra\scoisa|por\sfavor|{_LABEL})[,:;]?\s+){{0,3}}(?:
        (?:nunca|jamais|não)\s(?:(?:me|nos|se|o|a|os|as|lhe)\s){{0,2}}(?:{_NO_PT})(?:es|e|em|as|a|am)\b
          (?<!\sfala)(?<!\smanda)(?<!\spassa)(?<!\smuda)
        | (?:nunca|jamais)\s(?:\w+[aei]r\b|em\s|antes|depois|mais\sde|com\s|sem\s) | nada\sde\s
        | nenhuma?\s\w[^;:.!?]{{0,80}}\b(?:pode|deve|sem|fora|antes|depois|sai|entra)\b
        | ninguém\s(?:mexe|pode|deve|toca|entra|usa|altera|acessa)\b
        | (?:os?|as?|todo|toda|todos|todas|cada|nenhuma?|qualquer|meus?|minhas?|noss[oa]s?|ess[ae]s?|est[ae]s?)\s
          [^;:.!?]{{0,80}}\b(?:devem?|t[eê]m\s(?:que|de)|precisam?\s(?:ser|estar|de|ter|d[ao]s?)
              |não\spodem?\s{_CAN_PT}|só\spodem?)\b
        | nada\s(?:sai|vai|entra|muda)\b | sempre\sque\s[^,;.!?]{{1,60}},\s
        | só\s(?:podem?|use|aceito|com|depois|a\spartir)\b
        | (?:{_DO_PT})\s(?:[^,;:.!?]{{1,30}}\s)?sempre\b | sempre\s(?:{_DO_PT})\b | sempre\s(?:em|com)\s)
    """,
    r"""
    não\spodem?\s[^;:.!?]{1,60}\b(?:mais\s(?:de|do\sque|que)|sem)\b | t[eê]m\s(?:que|de)\sser\b
    | nem\sum\w*\s\w+\sa\smais\b | prefiro\s(?:sempre|que)\b | não\squero\s(?:que|nada|nenhum|ver|mais|\w+s\b)
    | (?:a\spartir\sde|daqui|de)\s(?:agora\s|hoje\s)?em\sdiante\b | daqui\s(?:pra|para\sa)\sfrente\b
    | a\spartir\sde\sagora\b
    | mas\s(?:só|apenas|somente)\s(?:em|com|se|de|depois|antes|quando|até|por|para
        |a\spartir)\b
    | (?<=[,;:]\s)(?:e\s|mas\s)?(?:nunca|jamais)\s\w | sem\s(?:a\s)?minha\s(?:aprovação|autorização|permissão)\b
    | sem\so\smeu\s(?:aval|ok)\b | responda(?:\s\w+){0,2}\sem\s\w | proibid[oa]s?\b
    | (?:é|sou|somos|são|ser)\s(?:\w+\s)?(?:alérgi|intoleran|celíac|vegan|vegetarian) | alergia\sa
    | (?:no\smáximo|não\smais\sde|o\smáximo\s(?:é|são))\s(?:\w+\s){0,2}\W?\w*
    """,
    r"""
    nada\sde\s(?:mais|novo|especial|isso|nada)\b | nenhuma?\s(?:ideia|problema|dúvida|notícia|novidade|pressa)
    | não\sse\s(?:preocupe|esqueça) | não\spode\sser\W*\Z | deve\s(?:ter|estar)\b
    """,
)
_ITALIAN = _language(
    "mai sempre non nessun nessuna deve devono rispondi rispondete allergico allergica vegetariano vegano glutine",
    r"""
    (?:(?:e|ma|allora|per\sfavore)[,:;]?\s+)*(?:mai\s\w+[aei]re\b | non\s(?:\w+\s)?(?:\w+re|\w+i|\w+ate|\w+ete)\smai\b
        | (?:usa|utilizza|scrivi|chiama|mantieni|chiedi|aggiungi|esegui|controlla|verifica
        |rispondi)(?:te)?\s(?:\w+\s){0,2}
          sempre\b
        | (?:il|lo|la|i|gli|le|ogni|tutti|tutte)\s[^;:.!?]{1,80}\b(?:deve|devono|non\spuò|non\spossono)\b
        | non\s(?:usare|toccare|modificare|cancellare|eliminare|inviare|aggiungere|rimuovere|eseguire|installare
        |condividere|rivelare|scrivere|chiamare|cambiare)\b)
    """,
    r"""
    d['’]ora\sin\s(?:poi|avanti)\b | rispond(?:i|ete)(?:\s\w+){0,2}\sin\s\w | allergic | vegetarian | vegan
    | senza\s(?:glutine|lattosio)
    """,
    r"""
    mai\s(?:visto|sentito|dire) | non\smollare | sempre\s(?:così|un\spiacere|più)
    """,
)
_LANGUAGES = (_GERMAN, _FRENCH, _SPANISH, _PORTUGUESE, _ITALIAN)


_WORDS = frozenset[str]().union(*(language.words for language in _LANGUAGES))
_ENGLISH = frozenset(["the", "and", "of", "you", "to", "with", "this", "that", "we", "are", "it", "is"])
"""Words of English and of none of these languages. An English sentence may have a "no" or a "solo", too."""


def language_rule(plain: str, words: Collection[str]) -> RuleKind | None:
    """Return the kind of rule of a sentence in one of these languages; None if it is none.

    :param plain: in lower case, after a space
    """
    if _WORDS.isdisjoint(words) or not _ENGLISH.isdisjoint(words):
        return None
    likely = [language for language in _LANGUAGES if not language.words.isdisjoint(words)]
    if not any(language.opening.search(plain) or language.anywhere.search(plain) for language in likely):
        return None
    return None if any(language.no_rule.search(plain) for language in likely) else "directive"


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
