"""Two rules of the user that are alike and both hold stay, in the ledger and in an extract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.ledger import RULE, ledger_of
from tidemark.summarizers.rules import is_rule
from tidemark.summarizers.sentences import words_of
from tidemark.tokens import LocalTokenCounter

PAIRS = [
    ("Never open port 8000.", "Never open port 9000."),
    ("Niemals Port 80 öffnen.", "Niemals Port 81 öffnen."),
    ("Room 12 must stay locked.", "Room 14 must stay locked."),
    ("Never call customer 4711.", "Never call customer 4712."),
    ("Keep answers under 100 words.", "Keep summaries under 50 words."),
    ("At most 2 coffees before noon.", "At most 3 coffees after lunch."),
    ("Bus 7 must not be booked.", "Bus 9 must not be booked."),
    ("Invoices over 500 euros need my approval.", "Refunds over 200 euros need my approval."),
    ("Kids get at most 2 hours of screen time on weekdays.", "Kids get at most 4 hours of screen time on weekends."),
    ("Never seat table 3 next to the band.", "Never seat table 5 next to the band."),
    ("Builds must finish within 10 minutes.", "Tests must finish within 20 minutes."),
    ("The staging cluster may have at most 3 nodes.", "The production cluster may have at most 9 nodes."),
    ("Leaf springs: no more than 40 mm travel.", "Coil springs: no more than 90 mm travel."),
    ("Always answer Tom in English.", "Always answer Pierre in French."),
    ("Don't mention Anna's surgery.", "Don't mention Anna's divorce."),
    ("Never use red in charts.", "Never use green in charts."),
    ("Kapitel 3 darf nicht geändert werden.", "Kapitel 5 darf nicht geändert werden."),
    ("Höchstens 20 Grad im Schlafzimmer.", "Höchstens 22 Grad im Wohnzimmer."),
    ("Rechnungen ab 1000 Euro nur mit Freigabe.", "Verträge ab 5000 Euro nur mit Freigabe."),
    ("Ne touche jamais au module 4.", "Ne touche jamais au module 6."),
    ("Pas plus de 10 minutes par question.", "Pas plus de 30 minutes par exposé."),
    ("La salle 2 doit rester libre.", "La salle 8 doit rester libre."),
    ("Nunca borres la tabla clientes.", "Nunca borres la tabla pedidos."),
    ("Como máximo 3 párrafos por correo.", "Como máximo 5 párrafos por informe."),
    ("La puerta 4 debe quedar cerrada.", "La puerta 6 debe quedar cerrada."),
    ("Não use o servidor 2.", "Não use o servidor 3."),
    ("No máximo 2 páginas por resumo.", "No máximo 6 páginas por relatório."),
    ("不要修改3号文件。", "不要修改5号文件。"),
    ("会议最多30分钟。", "培训最多60分钟。"),
    ("لا تستخدم المنفذ 80.", "لا تستخدم المنفذ 90."),
    ("The red team must have 5 players.", "The blue team must have 6 players."),
    ("Always round prices to 2 decimals.", "Always round rates to 4 decimals."),
    ("Speed must stay below 50 km/h in town.", "Speed must stay below 80 km/h on country roads."),
    ("No calls before 9.", "No deliveries before 7."),
    ("Never feed the cat after 8.", "Never feed the dog after 9."),
    ("Now: never deploy on Friday.", "And now the second thing: never deploy on Monday."),
    ("Please always cite sources in chapter 1.", "Actually, please also always cite sources in chapter 2."),
    ("From now on call me Sam.", "From now on call my wife Kim."),
    ("From now on no emojis in mails.", "From now on no emojis in reports."),
    ("You must not ship to Brazil.", "You can ship to Chile, but you must not ship to Peru."),
    ("Never mention the Berlin office.", "You can mention the Berlin parade."),
    ("Don't book flights before 8.", "You can book trains before 8."),
    ("Always log errors to port 514.", "Instead of a long list, always log errors in one line."),
    ("Never say 'guys'.", "Never say 'folks' either, from now on."),
    ("Vermeide Anglizismen.", "Ab jetzt vermeide auch Abkürzungen."),
    ("Pas de porc au menu.", "Désormais, pas de poisson au menu non plus."),
    ("Nada de picante para Leo.", "Desde ahora nada de picante para Ana."),
]
"""They were written to count harm: a mechanism that dropped a rule for a newer one on the same matter, with another
amount or in nearly the same words, dropped 18 of the first ones of these, and helped with 1 of 9 in talks that it was
not made for (docs/fidelity.md)."""
Talk = Callable[..., tuple[Message, ...]]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_both_rules_stay(talk: Talk, first: str, second: str) -> None:
    """A rule that is lost costs more than one that is out of date, beside which the newer one stands."""
    said = talk(first, "Fine.", second, "Fine.", "What is next?", "Lunch.")
    if is_rule(first, words_of(first)):
        assert first in ledger_of(said, "").entries[RULE]
    text = asyncio.run(
        ExtractiveSummarizer(LocalTokenCounter()).summarize(SummaryTask(said, None, 2000, "gpt-4o"))
    ).text
    for rule in (first, second):
        assert rule.removeprefix("Please ").removeprefix("Now: ").removeprefix("Actually, ") in text
