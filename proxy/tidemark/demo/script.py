"""Contains the demo's script: forty turns about one sailing trip.

`talk.py` asks these questions in order. The first turns state facts (the boat, the crew, an allergy, a rule). The last
turns ask for them, long after a window of 2,048 tokens is full.
"""

from __future__ import annotations

SYSTEM = "You help to plan a sailing trip. Answer in one or two short sentences."


def script(turns: int) -> tuple[str, ...]:
    """Return the first `turns` questions; a longer conversation repeats the script."""
    return tuple(_QUESTIONS[turn % len(_QUESTIONS)] for turn in range(turns))


_FACTS = (
    (
        "Hello! I am planning a sailing trip in the Aegean. The boat is called Petrel. She is a white "
        "sloop, eleven metres long, and she lies in the harbour of Paros."
    ),
    (
        "There are four of us in the crew: Marta is the skipper, Jonas is the cook, Aylin does the "
        "navigation, and I look after the engine."
    ),
    "Important: Jonas is allergic to peanuts, so nothing with peanuts may come on board. Please remember that.",
    "We have one firm rule on Petrel: we never sail after dark. Every leg has to end before sunset.",
    "We leave Paros on Monday the 8th of June, and we have to be back eleven days later. Is June a good month?",
    "Our money for the whole trip is 2400 euros, for food, fuel and harbour fees. How would you divide it?",
)

_PLANNING = (
    (
        "Here is what we found in the lockers today. Port locker: two fenders, one long mooring line, a"
        " bucket, the deck brush and a spare anchor with ten metres of chain. Starboard locker: six "
        "life jackets, four harness lines, the storm jib, a bag of shackles and the hand pump. Galley: "
        "two pots, one pan, eleven plates, nine forks, a gas cooker with one full bottle and one half "
        "empty bottle, matches, and a lamp. Chart table: three paper charts, dividers, a hand compass, "
        "binoculars, the radio licence and last year's log book. Engine bay: two oil filters, one "
        "impeller, a fan belt, four litres of oil and a torch. Is anything important missing?"
    ),
    "The first leg goes from Paros to Naxos, about twelve nautical miles. How long will that take at five knots?",
    (
        "Marta has found her notes from two years ago. Day one: left at seven, reefed at noon, moored "
        "in Naxos at two. Day two: stayed, because it blew eight. Day three: motored to Schinoussa in a"
        " calm, swam, ate at the small tavern above the beach. Day four: long leg to Amorgos, two of us"
        " seasick, arrived one hour before sunset, too late for a good berth. Day five: repaired the "
        "bilge pump with a piece of hose. Day six: sailed back under the small jib alone. What should "
        "we do better this time?"
    ),
    "In summer the Meltemi blows from the north in the afternoon. At what time of day should we cast off?",
    "Jonas wants to cook something simple on the first evening. What can he make with pasta, tomatoes and tuna?",
    (
        "The harbour guide says about Naxos: visitors moor stern-to at the south quay, in two to four "
        "metres of water, over sand and weed. Call the harbour office on channel twelve before you come"
        " in. Water and power are at every second berth, and the token for them is sold in the kiosk. "
        "The fuel lorry comes at eight and at four. The north wind pushes a swell into the basin, so "
        "put out a long chain and stand off the quay. A supermarket, a pharmacy and a sail maker are "
        "within five minutes. What should we ask the harbour office?"
    ),
    "How much drinking water should we carry for four people for three days without a harbour?",
    "The second leg goes from Naxos to Amorgos, thirty nautical miles. Is that too much for one day?",
    "I want to look after the diesel engine properly. What three things do I check before I start it?",
    (
        "Aylin has copied the weather report for us: northern Aegean, north four to five, rising six in"
        " the afternoon, sea slight. Central Aegean, north-west five, locally six in the channels "
        "between Paros and Naxos, good visibility, sea moderate. Southern Aegean, north-west five to "
        "six, gusts of seven near Amorgos and Santorini on Thursday and Friday, sea rough, then falling"
        " four on Saturday with clear skies and thirty degrees. Which days look good for us?"
    ),
    (
        "We have made a first shopping list. Staples: four kilos of pasta, three of rice, two of flour,"
        " lentils, oats, sugar, salt, two litres of olive oil, vinegar. Fresh: onions, garlic, "
        "potatoes, carrots, lemons, apples, melons, eggs, feta, yoghurt, bread for two days. Tins: "
        "tomatoes, tuna, beans, peas, peaches. Drinks: eighty litres of water, coffee, tea, juice, a "
        "little wine. Other things: matches, soap, paper towels, rubbish bags, sun cream, batteries, a "
        "spare lighter and plasters. Jonas says that it fits into the port locker if the fenders move "
        "forward. What is missing, and what would you leave out?"
    ),
    "Marta asks for a safety briefing on the first day. What are the most important points in it?",
    "How do we stow life jackets and harness lines so that everybody reaches them quickly?",
    (
        "The charter company has sent us its rules. The boat is handed over at nine in the morning, "
        "with a full tank of diesel and clean bed linen. She comes back by five in the afternoon on the"
        " last day, with a full tank again. Damage must be reported by telephone on the same day. The "
        "deposit of 1500 euros is paid back within a week. Pets are not allowed, and neither is smoking"
        " below deck. The outboard motor must be locked at night. Which of these rules is the easiest "
        "one to forget?"
    ),
    "One of us may get seasick on the long leg. What helps against it, and what should we avoid eating?",
    "In Amorgos we want to anchor in a bay with sand at six metres of depth. How much chain do we let out?",
    "How can we tell during the night that the anchor is dragging, and who should keep watch?",
    "From Amorgos we sail to Santorini. Is it wise to anchor inside the caldera, or is it too deep?",
    "Fuel: the engine burns three litres an hour and the tank holds ninety litres. How far do we get at five knots?",
    "If the wind rises to seven on the day of the Santorini leg, what would be a good plan for us?",
    "When do we have to put the first reef into the mainsail, and how do four people share the work?",
    "What belongs in a small first aid kit for eleven days on the water with four people?",
    "From Santorini we go on to Ios for two quiet days. What can we do there on a day without wind?",
    "On the last leg from Ios back to Paros the wind comes from ahead. Should we tack, or use the engine?",
    "How do we moor stern-to in a small Greek harbour with a side wind? Give us the order of the steps.",
    "What do we clean and check on the boat before we hand her back at the end of the trip?",
)

_RECALL = (
    "Now let us go back to the beginning. What is the name of our boat?",
    "Who is the skipper of our crew, and who does the navigation?",
    "Jonas wants to buy snacks. Which food must never come on board, and why?",
    "The last leg may take long. What is our firm rule about sailing after dark?",
    "From which harbour did we start, and where do we have to be back at the end?",
    "How much money did we plan for the whole trip?",
    "Please write a short entry for the log book that names the boat and the crew.",
    "Thank you, that was a good plan. Write one last sentence that wishes the crew fair winds.",
)

_QUESTIONS = _FACTS + _PLANNING + _RECALL
