-- KEYS[1]: a stream. It is written anew, with its groups and what is pending, because a node of a stream keeps the bytes
-- of a deleted entry while it has another one. Answer: how many entries it has.
local call, at, fresh = redis.call, KEYS[1], KEYS[1] .. ':fresh'
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end
local function newer(a, b)  -- whether id a is newer than id b
  local am, as = a:match('^(%d+)-(%d+)$')
  local bm, bs = b:match('^(%d+)-(%d+)$')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am > bm or (am == bm and as > bs)
end
if call('XLEN', at) == 0 then return 0 end
call('DEL', fresh)
local ids, first = {}, '-'
while true do
  local page = call('XRANGE', at, first, '+', 'COUNT', 64)
  if #page == 0 then break end
  for _, entry in ipairs(page) do
    call('XADD', fresh, entry[1], unpack(entry[2]))
    ids[#ids + 1] = entry[1]
  end
  first = '(' .. ids[#ids]
end
call('XSETID', fresh, fields(call('XINFO', 'STREAM', at))['last-generated-id'])
for _, flat in ipairs(call('XINFO', 'GROUPS', at)) do
  local group, read = fields(flat), 0
  local name, last = group.name, group['last-delivered-id']
  while ids[read + 1] and not newer(ids[read + 1], last) do read = read + 1 end
  -- Redis 6 has no such option.
  local made = redis.pcall('XGROUP', 'CREATE', fresh, name, last, 'ENTRIESREAD', read)
  if made.err then call('XGROUP', 'CREATE', fresh, name, last) end
  local pending = group.pending > 0 and call('XPENDING', at, name, '-', '+', group.pending) or {}
  for _, one in ipairs(pending) do
    local id, consumer, idle, deliveries = unpack(one)
    call('XCLAIM', fresh, name, consumer, 0, id, 'IDLE', idle, 'RETRYCOUNT', deliveries, 'FORCE', 'JUSTID')
  end
end
local lifetime = call('PTTL', at)
call('RENAME', fresh, at)
if lifetime > 0 then call('PEXPIRE', at, lifetime) end
return #ids
