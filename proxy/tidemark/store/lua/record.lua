-- Arguments: hashes, before, facts, turn, its lease's value, n x (digest, system message), messages skip + 1 to N.
-- Answer: own, then a '+' if the conversation begins with this turn, then a '~' if its record was damaged and is
-- whole from now on, then a '-' if the turn's response is not stored (answered.lua); nil if earlier messages are
-- gone, so that all must be sent, or if the conversation was forgotten meanwhile. Facts: expected id, skip, ttl, age,
-- created, tenant, owner, model, tokens, the client's name, the head it goes on from, its lease, n, how many system
-- messages are not sent because the expected conversation has them, for a conversation whose answers the client
-- repeats in other words the arguments of `shortened`, how many arguments the response has, in hex what the turn's
-- thinking is bound to (core/conversation/thinking.py), which a fork has from its parent, and what takes the place of
-- what was sent before the messages (core/conversation/sent_prompts.py), or "", the tenant's own ttl if a model may
-- have another, or "", and the dialect and program of the request, or "".
local expected, skip, ttl, age, created, tenant, owner, model, total, client_name, head, lease, systems, withheld, echo = unpack(facts)
local turn, lease_value = ARGV[4], ARGV[5]
local sent = facts[18]
local tenants_ttl = facts[19] ~= '' and facts[19] or ttl
local bound = facts[17]:gsub('%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
local first = 6 + 2 * systems  -- the argument of message skip + 1

local answers = mget({key('x', expected), key('x', head), key('l', lease), P .. ':d', key('a', expected)})
for i, own in ipairs({expected, head}) do
  if own ~= '' and answers[i] and tonumber(created) <= tonumber(answers[i]) then return false end
end
local holder, at = lease ~= '' and answers[3], answers[4]
aliases[expected] = answers[5]
local lost = holder and holder ~= lease_value  -- another turn is under way, and this one must not come between

local conv, k = #echo > 0 and shortened(expected, unpack(echo)) or nil, echo[1]
local is_repeated = conv ~= nil
if not is_repeated then conv, k = locate(expected, skip) end
if conv and not is_repeated then conv, k = settle(conv, k) end
k = conv and k or 0
if k < skip then return false end  -- earlier messages are gone: all must be sent
local function rest(of) return call('HMGET', key('c', of), 'stem', 'owner', 'created', 'dies', 'turns', 'idle', 'lent') end
local before = conv and rest(conv.own)
if skip > 0 and conv and before[1] then return false end  -- the same

local function exists(own) return open(own) or alias_of(own) end
local function free_name()
  if expected ~= '' and not exists(expected) then return expected end
  for pos = k + 1, N do
    if not exists(name(pos)) then return name(pos) end
  end
  return redis.sha1hex(H .. created):sub(1, 16)
end
local function alias(from, to)
  if from ~= '' and from ~= to and not exists(from) then
    call('SET', key('a', from), to)
    aliases[from] = to
    call('SADD', key('e', to), from)
    for _, name in ipairs(ttl > 0 and {key('a', from), key('e', to)} or {}) do call('EXPIRE', name, ttl) end
  end
end
local function inherit(from, to)
  for _, kind in ipairs({'r', 'q'}) do
    for _, ref in ipairs(call('LRANGE', key(kind, from), 0, -1)) do
      if on_chain(conv, k, position(ref), ref:sub(5, 20)) and not call('LPOS', key(kind, to), ref) then
        call('RPUSH', key(kind, to), ref)
      end
    end
  end
end

local fields = {}  -- of the record, written at once
local function set(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end

local earlier_bound, earlier_sent = conv and conv.bound or '', conv and conv.sent or ''
local begins = not conv or (k < N and (k < conv.count or lost))
local own = begins and free_name() or conv.own
local former = states[own]
local damaged = begins and former and former.base and not former.whole or not begins and conv.mended
local began = (begins and '+' or '') .. (damaged and '~' or '')
-- an unexpected fork needs system messages of its own, and so does a conversation that has lost them
if withheld > 0 and (own ~= expected or call('EXISTS', key('y', own)) == 0) then return false end
if begins then before = rest(own) end
local stem, stored_owner, since, dies, turns, idle, lent = unpack(before)
local touched, parent
if begins then
  touched, parent = conv and conv.touched or now(), conv and conv.own or ''
  for _, kind in ipairs({'h', 'm'}) do call('DEL', key(kind, own)) end  -- what is left of one that lost its parts
  if not since then set('created', created) end
  if age > 0 and not dies then
    dies = (since or created) + age
    set('dies', dies)
  end
  for field, value in pairs({base = k, parent = parent, tenant = tenant, owner = owner, touched = touched}) do
    set(field, value)
  end
else
  touched, parent = conv.touched, conv.parent
  if stem then call('HDEL', key('c', own), 'stem') end
  if not stored_owner then set('owner', owner) end  -- one of the time before there were lists
end
-- What a fork shares with its parents lives as long as either needs it: a model's lifetime may differ from the next's.
local by_model = facts[19] ~= ''
local is_other_lifetime = by_model and conv and begins or tonumber(idle or tenants_ttl) ~= ttl
if ttl ~= tenants_ttl then set('idle', ttl) elseif idle then call('HDEL', key('c', own), 'idle') end
local needed = with_lent(ttl, lent)
local seconds = bounded(needed, dies)
local function lend(to)
  local ends, stored = needed > 0 and now() + needed or 0, tonumber(call('HGET', key('c', to), 'lent') or 1)
  if stored ~= 0 and (ends == 0 or ends > stored) then call('HSET', key('c', to), 'lent', ends) end
end
local lasting = seconds > 0 and {'EX', seconds} or {}
if begins then
  drop_state(own)
  if conv then
    call('SADD', key('b', conv.own), own)
    local remaining = span(conv.own, tenants_ttl)
    if remaining > 0 then call('EXPIRE', key('b', conv.own), remaining) end
    inherit(conv.own, own)
    list_fork(chain(k), own, seconds)
  end
  if k < N then alias(name(k + 1), own) end
end
if expected ~= '' and expected ~= own and not open(expected) then
  inherit(expected, own)
  alias(expected, own)
end

if is_repeated and k == conv.base then alias(name(k + 1), own) end
if begins or k < N then set('count', N) elseif damaged then set('count', conv.count) end
if k < N then
  call('APPEND', key('h', own), H:sub(16 * (k - W) + 1))
  set('tokens', total)
end
for from = first + k - skip, first + N - skip - 1, 1000 do  -- unpack has a limit
  call('RPUSH', key('m', own), unpack(ARGV, from, math.min(from + 999, first + N - skip - 1)))
end
for i = 6, first - 1, 2 do call('HSETNX', key('y', own), ARGV[i], ARGV[i + 1]) end

if bound ~= '' or begins and earlier_bound ~= '' then set('bound', (earlier_bound .. bound):sub(-16384)) end
if sent ~= '' or begins and earlier_sent ~= '' then set('sent', sent ~= '' and sent or earlier_sent) end
if begins and sent ~= '' and earlier_sent ~= '' then  -- what a fork was told, the next fork is not told again
  local told = sent:match('^[^\n]*')
  local all = told .. (earlier_sent:match('\n.*$') or '')
  if told ~= '' and all ~= earlier_sent then call('HSET', key('c', conv.own), 'sent', all) end
end
local fresh = true
for _, entry in ipairs(call('LRANGE', key('t', own), -8, -1)) do
  if entry:sub(1, 16) == turn:sub(1, 16) then fresh = false end
end
if fresh then
  call('RPUSH', key('t', own), turn)
  set('turns', (turns or 0) + 1)
  set('updated', created)
  set('model', model)
  if facts[20] ~= '' then set('sender', facts[20]) end
end
if client_name ~= '' then
  set('name', client_name)
  -- after the lease has expired, another turn may have gone on from the same place: then the name is its own
  local leading = not at or not open(at) or (at == head and holder == lease_value)
  if lease == '' or (not lost and leading) then call('SET', P .. ':d', own) end
  if ttl > 0 then prolong(P .. ':d', ttl) end
end
if holder == lease_value then call('DEL', key('l', lease)) end
for pos = math.max(1, N - 1, W + 1), N do call('SET', key('n', chain(pos)), own, unpack(lasting)) end

local missing = keep_answer(own, 0, answered)  -- it lives as long as the rest, see below
local rare = count_existing({key('y', own), key('r', own), key('q', own), key('b', own), key('o', own), key('v', own)})  -- few have them
set('summaries', rare > 0 and call('LLEN', key('r', own)) or 0)
call('HSET', key('c', own), unpack(fields))
if seconds <= 0 then return own .. began .. missing end

for _, kind in ipairs({'c', 'h', 'm', 't'}) do call('EXPIRE', key(kind, own), seconds) end
for _, kind in ipairs({'y', 'r', 'q', 'b', 'o', 'v'}) do
  if rare == 0 then break end
  rare = rare - call('EXPIRE', key(kind, own), seconds)
end
if is_other_lifetime or now() - tonumber(touched) >= math.min(seconds / 8, 86400) then  -- its parents and summaries, about once a day
  call('HSET', key('c', own), 'touched', now())
  local base = begins and k or conv.base
  for _, ref in ipairs(call('LRANGE', key('r', own), 0, -1)) do
    if position(ref) > base then call('EXPIRE', summary(ref), seconds) else prolong(summary(ref), seconds) end
  end
  for _, ref in ipairs(is_other_lifetime and call('LRANGE', key('q', own), 0, -1) or {}) do
    if position(ref) > base then call('EXPIRE', summary(ref, 'w'), seconds) end
  end
  for _, from in ipairs(is_other_lifetime and call('SMEMBERS', key('e', own)) or {}) do
    for _, at in ipairs({key('e', own), key('a', from)}) do prolong(at, seconds) end
  end
  call('EXPIRE', key('z', own), seconds)
  local up = open(parent)
  while up do
    if by_model then lend(up.own) end
    local remaining = span(up.own, tenants_ttl)
    for _, kind in ipairs(remaining > 0 and {'c', 'h', 'm', 't', 'y', 'r', 'q', 'b', 'o', 'v', 'z'} or {}) do
      call('EXPIRE', key(kind, up.own), remaining)
    end
    up = open(up.parent)
  end
end
return own .. began .. missing
