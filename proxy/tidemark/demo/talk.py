"""Holds the demo's conversation with the plain `openai` client, and says what became of each turn.

`run.py` calls `converse` once for the model's server and once for Tidemark, and `screen.py` renders the turns. Early
turns state facts (the boat, the crew, an allergy, a rule), and the last ones ask for them, long after a window of 1,536
tokens is full. Importing this file imports `openai`, which takes about a second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import httpx
import openai

from tidemark.demo.llama import MODEL
from tidemark.demo.screen import HEADING, Screen, Turn

REPLY_TOKENS = 32
"""The longest answer: a sentence or two, so that forty turns take about a minute."""
_OVERFLOWS = frozenset({"exceed_context_size_error", "context_length_exceeded"})  # of llama.cpp and of OpenAI
_SYSTEM = "You help to plan a sailing trip. Answer in one or two short sentences."
QUESTIONS = """\
Hello! I am planning a sailing trip in the Aegean. The boat is called Petrel. She is a white sloop, eleven metres \
long, and she lies in the harbour of Paros.
There are four of us in the crew: Marta is the skipper, Jonas is the cook, Aylin does the navigation, and I look after \
the engine.
Important: Jonas is allergic to peanuts, so nothing with peanuts may come on board. Please remember that.
We have one firm rule on Petrel: we never sail after dark. Every leg has to end before sunset.
We leave Paros on Monday the 8th of June, and we have to be back eleven days later. Is June a good month?
Our money for the whole trip is 2400 euros, for food, fuel and harbour fees. How would you divide it?
Here is what we found in the lockers today. Port locker: two fenders, one long mooring line, a bucket, the deck brush \
and a spare anchor with ten metres of chain. Starboard locker: six life jackets, four harness lines, the storm jib, a \
bag of shackles and the hand pump. Galley: two pots, one pan, eleven plates, nine forks, a gas cooker with one full \
bottle and one half empty bottle, matches, and a lamp. Chart table: three paper charts, dividers, a hand compass, \
binoculars, the radio licence and last year's log book. Engine bay: two oil filters, one impeller, a fan belt, four \
litres of oil and a torch. Is anything important missing?
The first leg goes from Paros to Naxos, about twelve nautical miles. How long will that take at five knots?
Marta has found her notes from two years ago. Day one: left at seven, reefed at noon, moored in Naxos at two. Day two: \
stayed, because it blew eight. Day three: motored to Schinoussa in a calm, swam, ate at the small tavern above the \
beach. Day four: long leg to Amorgos, two of us seasick, arrived one hour before sunset, too late for a good berth. \
Day five: repaired the bilge pump with a piece of hose. Day six: sailed back under the small jib alone. What should we \
do better this time?
In summer the Meltemi blows from the north in the afternoon. At what time of day should we cast off?
Jonas wants to cook something simple on the first evening. What can he make with pasta, tomatoes and tuna?
The harbour guide says about Naxos: visitors moor stern-to at the south quay, in two to four metres of water, over \
sand and weed. Call the harbour office on channel twelve before you come in. Water and power are at every second \
berth, and the token for them is sold in the kiosk. The fuel lorry comes at eight and at four. The north wind pushes a \
swell into the basin, so put out a long chain and stand off the quay. A supermarket, a pharmacy and a sail maker are \
within five minutes. What should we ask the harbour office?
How much drinking water should we carry for four people for three days without a harbour?
The second leg goes from Naxos to Amorgos, thirty nautical miles. Is that too much for one day?
I want to look after the diesel engine properly. What three things do I check before I start it?
Aylin has copied the weather report for us: northern Aegean, north four to five, rising six in the afternoon, sea \
slight. Central Aegean, north-west five, locally six in the channels between Paros and Naxos, good visibility, sea \
moderate. Southern Aegean, north-west five to six, gusts of seven near Amorgos and Santorini on Thursday and Friday, \
sea rough, then falling four on Saturday with clear skies and thirty degrees. Which days look good for us?
We have made a first shopping list. Staples: four kilos of pasta, three of rice, two of flour, lentils, oats, sugar, \
salt, two litres of olive oil, vinegar. Fresh: onions, garlic, potatoes, carrots, lemons, apples, melons, eggs, feta, \
yoghurt, bread for two days. Tins: tomatoes, tuna, beans, peas, peaches. Drinks: eighty litres of water, coffee, tea, \
juice, a little wine. Other things: matches, soap, paper towels, rubbish bags, sun cream, batteries, a spare lighter \
and plasters. Jonas says that it fits into the port locker if the fenders move forward. What is missing, and what \
would you leave out?
Marta asks for a safety briefing on the first day. What are the most important points in it?
How do we stow life jackets and harness lines so that everybody reaches them quickly?
The charter company has sent us its rules. The boat is handed over at nine in the morning, with a full tank of diesel \
and clean bed linen. She comes back by five in the afternoon on the last day, with a full tank again. Damage must be \
reported by telephone on the same day. The deposit of 1500 euros is paid back within a week. Pets are not allowed, and \
neither is smoking below deck. The outboard motor must be locked at night. Which of these rules is the easiest one to \
forget?
One of us may get seasick on the long leg. What helps against it, and what should we avoid eating?
In Amorgos we want to anchor in a bay with sand at six metres of depth. How much chain do we let out?
How can we tell during the night that the anchor is dragging, and who should keep watch?
From Amorgos we sail to Santorini. Is it wise to anchor inside the caldera, or is it too deep?
Fuel: the engine burns three litres an hour and the tank holds ninety litres. How far do we get at five knots?
If the wind rises to seven on the day of the Santorini leg, what would be a good plan for us?
When do we have to put the first reef into the mainsail, and how do four people share the work?
What belongs in a small first aid kit for eleven days on the water with four people?
From Santorini we go on to Ios for two quiet days. What can we do there on a day without wind?
On the last leg from Ios back to Paros the wind comes from ahead. Should we tack, or use the engine?
How do we moor stern-to in a small Greek harbour with a side wind? Give us the order of the steps.
What do we clean and check on the boat before we hand her back at the end of the trip?
Now let us go back to the beginning. What is the name of our boat?
Who is the skipper of our crew, and who does the navigation?
Jonas wants to buy snacks. Which food must never come on board, and why?
The last leg may take long. What is our firm rule about sailing after dark?
From which harbour did we start, and where do we have to be back at the end?
How much money did we plan for the whole trip?
Please write a short entry for the log book that names the boat and the crew.
Thank you, that was a good plan. Write one last sentence that wishes the crew fair winds.
""".splitlines()


def client_of(port: int) -> openai.OpenAI:
    """Return a client of the server on `port` of this machine; it never tries again, since the demo shows failures."""
    # Each question has a connection of its own: llama.cpp may close a kept one at the moment of the next question.
    # The environment's proxies are ignored.
    http = openai.DefaultHttpxClient(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
    url = f"http://127.0.0.1:{port}/v1"
    return openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=90, http_client=http)


def converse(name: str, port: int, questions: Sequence[str], screen: Screen) -> list[Turn]:
    """Ask the questions in turn, always sending the whole history, up to the first failure; show each turn."""
    messages: list[Any] = [{"role": "system", "content": _SYSTEM}]
    turns: list[Turn] = []
    client = client_of(port)
    screen.say(HEADING)
    for number, question in enumerate(questions, start=1):
        messages.append({"role": "user", "content": question})
        try:
            turn = _ask(client, number, messages, screen)
        except (openai.APIError, httpx.HTTPError) as error:  # inside a stream the errors are httpx's
            body = error.body if isinstance(error, openai.APIError) and isinstance(error.body, dict) else {}
            message = str(body.get("message") or str(error) or type(error).__name__)
            is_overflow = bool(_OVERFLOWS & {body.get("type"), body.get("code")})
            turn = Turn(number, question, error=message, is_overflow=is_overflow)
        turns.append(turn)
        screen.show(turn, f"{name} {number}/{len(questions)}")
        if turn.error:
            break
        messages.append({"role": "assistant", "content": turn.answer})
    return turns


def _ask(client: openai.OpenAI, number: int, messages: list[Any], screen: Screen) -> Turn:
    """Ask, and return the whole answer; raises `openai.APIError` or `httpx.HTTPError` if there is none."""
    started, text, usage = time.monotonic(), "", None
    response = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=messages,
        max_tokens=REPLY_TOKENS,
        temperature=0,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    with response.parse() as stream:
        for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
            screen.listen(text)
    if usage is None:  # it comes last
        raise httpx.RemoteProtocolError("the answer ended early, without a reason")
    cached = usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
    seconds = time.monotonic() - started
    return Turn(number, messages[-1]["content"], text, response.headers, usage.prompt_tokens, cached or 0, seconds)
