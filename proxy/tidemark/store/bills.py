"""Stores what the turns of one conversation cost, in one hash beside its record.

``features/bill/`` adds to it after responses, and the pages of a conversation read it. It is deleted with the
conversation, and lives as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.bill import AMOUNTS, BillFigures, EarlierTurn
from tidemark.core.conversation.prefix import split_id
from tidemark.core.frozen import frozen
from tidemark.store import keys
from tidemark.store.commands import Ask

BATCH = b"batch "
"""Begins the field of each worker, which has the number of the last batch that it added."""
TEXTS = frozenset({b"batch", b"model"})
"""The fields that are no numbers; earlier versions had the first one."""
MOST_WRITERS = 32
"""The most workers whose last batch is stored; a batch is sent again within seconds."""
_FIND = """
local own = ARGV[1]
if redis.call('EXISTS', KEYS[1] .. ':c:' .. own) == 0 then own = redis.call('GET', KEYS[1] .. ':a:' .. own) end
if not own then return {} end
local bill = KEYS[1] .. ':p:' .. own
"""
_READ = f"{_FIND} return redis.call('HGETALL', bill)"
_ADD = f"""{_FIND}
local record, writer = KEYS[1] .. ':c:' .. own, '{BATCH.decode()}' .. ARGV[2]
if redis.call('EXISTS', record) == 0 or redis.call('HGET', bill, writer) == ARGV[3] then return 0 end
if redis.call('HLEN', bill) > {MOST_WRITERS + len(AMOUNTS) + 4} then
  for _, field in ipairs(redis.call('HKEYS', bill)) do
    if string.sub(field, 1, {len(BATCH)}) == '{BATCH.decode()}' then redis.call('HDEL', bill, field) end
  end
end
redis.call('HSET', bill, writer, ARGV[3])
if ARGV[4] ~= '0' then
  redis.call('HSET', bill, 'input', ARGV[4], 'answered', ARGV[5], 'caches', ARGV[6], 'model', ARGV[7])
end
for place = 8, #ARGV, 2 do redis.call('HINCRBY', bill, ARGV[place], ARGV[place + 1]) end
local left = redis.call('PTTL', record)
if left > 0 then redis.call('PEXPIRE', bill, left) end
return 1
"""
_NAMES = {name.encode(): name for name in AMOUNTS}


@frozen
class ConversationBill:
    """What a conversation's turns cost."""

    figures: BillFigures
    newest: EarlierTurn | None
    """What is known of its newest turn."""


NO_BILL = ConversationBill(BillFigures(), None)


class RedisBills:
    """The bills of conversations in Redis. All state is the server's.

    Both methods raise ``StoreUnavailable`` if the store does not answer in time. An id may be one that led to the
    conversation before.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def read(self, conversation: str) -> ConversationBill:
        """Return a conversation's bill; an empty one if it has none, or is gone."""
        family, own = split_id(conversation)
        flat: Sequence[bytes] = await self._ask("EVAL", _READ, 1, keys.family_prefix(family), own)
        return _bill(flat) if flat else NO_BILL

    async def add(self, conversation: str, batch: str, figures: BillFigures, newest: EarlierTurn | None) -> None:
        """Add figures of a conversation that is stored. A worker's newest batch that is sent again adds nothing.

        :param batch: the worker's name and the batch's number, with a space between them
        """
        family, own = split_id(conversation)
        turn = newest or EarlierTurn("", 0, 0.0, caches=False)
        amounts = [part for name in AMOUNTS if (amount := getattr(figures, name)) for part in (name, amount)]
        writer, _, number = batch.rpartition(" ")
        about = (own, writer, number, turn.input_tokens, repr(turn.answered_at), int(turn.caches), turn.model)
        await self._ask("EVAL", _ADD, 1, keys.family_prefix(family), *about, *amounts)


def _bill(flat: Sequence[bytes]) -> ConversationBill:
    """Return the bill of a hash; fields of a newer version are left out, and a broken hash is none."""
    stored = dict(zip(flat[::2], flat[1::2], strict=True))
    try:
        figures = BillFigures(**{_NAMES[name]: int(amount) for name, amount in stored.items() if name in _NAMES})
        answered_at, tokens = float(stored.get(b"answered", 0)), int(stored.get(b"input", 0))
    except ValueError:
        return NO_BILL
    model = stored.get(b"model", b"").decode("utf-8", "replace")
    newest = EarlierTurn(model, tokens, answered_at, caches=stored.get(b"caches") == b"1") if tokens else None
    return ConversationBill(figures, newest)
