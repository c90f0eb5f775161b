-- hashes, before, facts, turn, its lease's value, n x (digest, system message), messages known + 1 to N -> own; nil where
-- earlier messages are gone, so that all must be sent, or where the conversation was forgotten meanwhile. The facts: told,
-- known, ttl, age, created, tenant, owner, model, tokens, its client's name, the head it goes on from, its lease, n, and
-- how many system messages are not sent, since the conversation that was told has them
local told, known, ttl, age, created, tenant, owner, model, total, called, head, lease, systems, withheld = unpack(facts)
local turn, held = ARGV[4], ARGV[5]
local first = 6 + 2 * systems  -- of the messages known + 1 to N

local asked = call('MGET', key('x', told), key('x', head), key('l', lease), P .. ':d', key('a', told))
for i, own in ipairs({told, head}) do
  if own ~= '' and asked[i] and tonumber(created) <= tonumber(asked[i]) then return false end
end
local holder, at = lease ~= '' and asked[3], asked[4]
leads[told] = asked[5]
local lost = holder and holder ~= held  -- somebody else's turn: this one must not come in between

local conv, k = locate(told, known)
if conv then conv, k = settle(conv, k) else k = 0 end
if k < known then return false end  -- something is gone: all of it is needed
local function rest(of) return call('HMGET', key('c', of), 'stem', 'owner', 'created', 'dies', 'turns') end
local before = conv and rest(conv.own)
if known > 0 and conv and before[1] then return false end  -- the same

local function taken(own) return open(own) or led(own) end
local function free_name()
  if told ~= '' and not taken(told) then return told end
  for pos = k + 1, N do
    if not taken(name(pos)) then return name(pos) end
  end
  return redis.sha1hex(H .. created):sub(1, 16)
end
local function alias(from, to)
  if from ~= '' and from ~= to and not taken(from) then
    call('SET', key('a', from), to)
    leads[from] = to
    call('SADD', key('e', to), from)
    for _, kept in ipairs(ttl > 0 and {key('a', from), key('e', to)} or {}) do call('EXPIRE', kept, ttl) end
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

local begins = not conv or (k < N and (k < conv.count or lost))
local own = begins and free_name() or conv.own
if withheld > 0 and own ~= told then return false end  -- a fork that nobody foresaw needs its own
if begins then before = rest(own) end
local stem, owned, since, dies, turns = unpack(before)
local touched, parent
if begins then
  touched, parent = conv and conv.touched or now(), conv and conv.own or ''
  call('DEL', key('h', own), key('m', own))  -- what is left of one that lost its parts
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
  if not owned then set('owner', owner) end  -- one of the time before there were lists
end
local seconds = bounded(ttl, dies)
local lasting = seconds > 0 and {'EX', seconds} or {}
if begins then
  forgotten(own)
  if conv then
    call('SADD', key('b', conv.own), own)
    local left = span(conv.own, ttl)
    if left > 0 then call('EXPIRE', key('b', conv.own), left) end
    inherit(conv.own, own)
  end
  if k < N then alias(name(k + 1), own) end
end
if told ~= '' and told ~= own and not open(told) then
  inherit(told, own)
  alias(told, own)
end

if begins or k < N then set('count', N) end
if k < N then
  call('APPEND', key('h', own), H:sub(16 * (k - W) + 1))
  set('tokens', total)
end
for from = first + k - known, first + N - known - 1, 1000 do  -- unpack has a limit
  call('RPUSH', key('m', own), unpack(ARGV, from, math.min(from + 999, first + N - known - 1)))
end
for i = 6, first - 1, 2 do call('HSETNX', key('y', own), ARGV[i], ARGV[i + 1]) end

local fresh = true
for _, entry in ipairs(call('LRANGE', key('t', own), -8, -1)) do
  if entry:sub(1, 16) == turn:sub(1, 16) then fresh = false end
end
if fresh then
  call('RPUSH', key('t', own), turn)
  set('turns', (turns or 0) + 1)
  set('updated', created)
  set('model', model)
end
if called ~= '' then
  set('name', called)
  -- with a lease that has run out, others may have gone on from the same place: then the name is theirs
  local leading = not at or not open(at) or (at == head and holder == held)
  if lease == '' or (not lost and leading) then call('SET', P .. ':d', own) end
  if ttl > 0 then call('EXPIRE', P .. ':d', ttl) end
end
if holder == held then call('DEL', key('l', lease)) end
for pos = math.max(1, N - 1, W + 1), N do call('SET', key('n', chain(pos)), own, unpack(lasting)) end

local rare = call('EXISTS', key('y', own), key('r', own), key('q', own), key('b', own))  -- so many of what few have
set('summaries', rare > 0 and call('LLEN', key('r', own)) or 0)
call('HSET', key('c', own), unpack(fields))
if seconds <= 0 then return own end

for _, kind in ipairs({'c', 'h', 'm', 't'}) do call('EXPIRE', key(kind, own), seconds) end
for _, kind in ipairs({'y', 'r', 'q', 'b'}) do
  if rare == 0 then break end
  rare = rare - call('EXPIRE', key(kind, own), seconds)
end
if now() - tonumber(touched) >= math.min(seconds / 8, 86400) then  -- what it rests on, about once a day
  call('HSET', key('c', own), 'touched', now())
  for _, ref in ipairs(call('LRANGE', key('r', own), 0, -1)) do call('EXPIRE', summary(ref), seconds) end
  local up = open(parent)
  while up do
    local left = span(up.own, ttl)
    for _, kind in ipairs(left > 0 and {'c', 'h', 'm', 't', 'y', 'r', 'q', 'b'} or {}) do
      call('EXPIRE', key(kind, up.own), left)
    end
    up = open(up.parent)
  end
end
return own
