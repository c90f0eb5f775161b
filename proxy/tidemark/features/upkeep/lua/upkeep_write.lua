-- KEYS[1]: the beginning of the keys' names. Arguments: "1" to replace what is stored, the own part of a conversation or "", the
-- time in milliseconds; then for each key: name, type, expiry in milliseconds or 0, n, n items as upkeep_read.lua answers
-- them. Of a stream the items are id, n, n x (field or value), ...; of type "group" they are name, last id, how many entries follow, then id,
-- consumer, idle milliseconds and deliveries of what is pending; of type "last" the newest id ever.
-- Answer: "added", "replaced", "unchanged", "differing" (nothing is written, what is stored may be newer) or "expired".
local call, P, replace, own, now = redis.call, KEYS[1], ARGV[1] == '1', ARGV[2], tonumber(ARGV[3])
local parts, at = {}, 4
while at <= #ARGV do
  local n = tonumber(ARGV[at + 3])
  parts[#parts + 1] = {name = ARGV[at], kind = ARGV[at + 1], expires = tonumber(ARGV[at + 2]), first = at + 4, last = at + 3 + n}
  at = at + 4 + n
end

local function push(command, part)
  for from = part.first, part.last, 1000 do  -- unpack has a limit
    call(command, part.name, unpack(ARGV, from, math.min(from + 999, part.last)))
  end
end
local function same_list(part)
  local stored = call('LRANGE', part.name, 0, -1)
  if #stored ~= part.last - part.first + 1 then return false end
  for i, item in ipairs(stored) do
    if item ~= ARGV[part.first + i - 1] then return false end
  end
  return true
end
local function pairs_of(part, store)  -- each field or member by itself, so a large key may come in pages
  local added, left = 0, 0
  for i = part.first, part.last, 2 do
    local outcome = store(ARGV[i], ARGV[i + 1])
    if outcome == 'added' then added = added + 1 elseif outcome == 'differing' then left = left + 1 end
  end
  return left > 0 and 'differing' or added > 0 and 'added' or 'unchanged'
end
local function newer(a, b)  -- whether id a of a stream is newer than b
  local am, as = a:match('^(%d+)-(%d+)$')
  local bm, bs = b:match('^(%d+)-(%d+)$')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am > bm or (am == bm and as > bs)
end
local function about(name, field)  -- of a stream
  if call('EXISTS', name) == 0 then return nil end
  local flat = call('XINFO', 'STREAM', name)
  for i = 1, #flat, 2 do
    if flat[i] == field then return flat[i + 1] end
  end
end
local function newest(name) return about(name, 'last-generated-id') or '0-0' end
local function is_refused(answer) return type(answer) == 'table' and answer.err end

local writes = {}
function writes.string(part)
  local stored, value = call('GET', part.name), ARGV[part.first]
  if stored == value then return 'unchanged' end
  if stored and not replace then return 'differing' end
  call('SET', part.name, value, 'KEEPTTL')
  return stored and 'replaced' or 'added'
end
function writes.list(part)
  local there = call('EXISTS', part.name) == 1
  if there and same_list(part) then return 'unchanged' end
  if there and not replace then return 'differing' end
  call('DEL', part.name)
  push('RPUSH', part)
  return there and 'replaced' or 'added'
end
function writes.hash(part)
  return pairs_of(part, function(field, value)
    local stored = call('HGET', part.name, field)
    if stored == value then return 'unchanged' end
    if stored and not replace then return 'differing' end
    call('HSET', part.name, field, value)
    return 'added'
  end)
end
function writes.set(part)
  local before = call('SCARD', part.name)
  push('SADD', part)
  return call('SCARD', part.name) > before and 'added' or 'unchanged'
end
function writes.zset(part)
  return pairs_of(part, function(member, score)
    local changed
    if replace then
      changed = call('ZADD', part.name, 'CH', score, member)
    else
      changed = call('ZADD', part.name, 'GT', 'CH', score, member)
    end
    return changed == 1 and 'added' or 'unchanged'
  end)
end
function writes.stream(part)
  local last, i, added, left = newest(part.name), part.first, 0, 0
  while i <= part.last do
    local id, n = ARGV[i], tonumber(ARGV[i + 1])
    if newer(id, last) then
      call('XADD', part.name, id, unpack(ARGV, i + 2, i + 1 + n))
      added = added + 1
    elseif #call('XRANGE', part.name, id, id) == 0 then
      left = left + 1
    end
    i = i + 2 + n
  end
  return left > 0 and 'differing' or added > 0 and 'added' or 'unchanged'
end
function writes.group(part)
  local name, last, lag = unpack(ARGV, part.first, part.first + 2)
  local all = about(part.name, 'entries-added') or 0
  local made = {err = ''}
  if tonumber(lag) >= 0 then  -- so that the server can tell how many follow; Redis 6 has no such option
    made = redis.pcall('XGROUP', 'CREATE', part.name, name, last, 'MKSTREAM', 'ENTRIESREAD', math.max(0, all - lag))
  end
  if is_refused(made) then made = redis.pcall('XGROUP', 'CREATE', part.name, name, last, 'MKSTREAM') end
  if is_refused(made) then return 'unchanged' end  -- its own consumers are at work there
  for i = part.first + 3, part.last, 4 do
    local id, consumer, idle, deliveries = unpack(ARGV, i, i + 3)
    call('XCLAIM', part.name, name, consumer, 0, id, 'IDLE', idle, 'RETRYCOUNT', deliveries, 'FORCE', 'JUSTID')
  end
  return 'added'
end
function writes.last(part)
  if call('EXISTS', part.name) == 1 and newer(ARGV[part.first], newest(part.name)) then
    call('XSETID', part.name, ARGV[part.first])
  end
  return 'unchanged'
end

local function write(part)
  if part.expires > 0 and part.expires <= now then return 'expired' end
  local kind = part.kind
  local stored = call('TYPE', part.name)['ok']
  if stored ~= 'none' and stored ~= ((kind == 'group' or kind == 'last') and 'stream' or kind) then
    if not replace then return 'differing' end
    call('DEL', part.name)
    stored = 'none'
  end
  local outcome = writes[kind](part)
  if stored == 'none' and part.expires > 0 then call('PEXPIREAT', part.name, part.expires) end
  return outcome
end

local function record(part)  -- the fields of a conversation's record
  local map = {}
  for i = part.first, part.last, 2 do map[ARGV[i]] = ARGV[i + 1] end
  return map
end

if own == '' then
  local outcome = 'unchanged'
  local weight = {unchanged = 0, expired = 1, added = 2, replaced = 3, differing = 4}
  for _, part in ipairs(parts) do
    local one = write(part)
    if weight[one] > weight[outcome] then outcome = one end
  end
  return outcome
end

local c = P .. ':c:' .. own
local first = parts[1]  -- the record stands first
if first.expires > 0 and first.expires <= now then return 'expired' end
local outcome = 'added'
if not replace and call('EXISTS', P .. ':x:' .. own) == 1 then return 'differing' end  -- forgotten a moment ago
if call('EXISTS', c) == 1 then
  local comes = record(first)
  local there = call('HMGET', c, 'updated', 'count', 'stem')
  local comes_at, there_at = tonumber(comes.updated or '0'), tonumber(there[1] or '0')
  if comes_at == there_at and comes.count == there[2] and not replace then return 'unchanged' end
  if not replace and (there[3] or comes_at <= there_at) then return 'differing' end
  for _, part in ipairs(parts) do
    if part.kind ~= 'set' then call('DEL', part.name) end  -- sets name other conversations; they grow
  end
  outcome = 'replaced'
end
for _, part in ipairs(parts) do write(part) end
return outcome
