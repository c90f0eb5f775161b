-- KEYS[1]: the beginning of both keys' names, in their slot. Arguments: what to move ("key", "field", "element", "entry" or
-- "message"), from, to, place, value, what stays in its place. Answer: 1, or 0 if it has changed since and nothing
-- was moved. It keeps the time to live, and deletes nothing: what stands at the target already stays beside it.
local what, from, to, place, value, rest = unpack(ARGV)
local call = redis.call
local ttl = call('PTTL', from)

local function free(name)  -- a name that no key has
  local number, tried = 1, name
  while call('EXISTS', tried) == 1 do number, tried = number + 1, name .. ':' .. number end
  return tried
end
local function last()  -- the target lives as long as its longest-lived part
  local there = call('PTTL', to)
  if ttl < 0 then call('PERSIST', to) elseif there < ttl then call('PEXPIRE', to, ttl) end
end
local function keep(field, content)
  local new = call('EXISTS', to) == 0
  local number, tried = 1, field
  while call('HSETNX', to, tried, content) == 0 and call('HGET', to, tried) ~= content do
    number, tried = number + 1, field .. '#' .. number
  end
  if new and ttl >= 0 then call('PEXPIRE', to, ttl) elseif not new then last() end
end

if what == 'key' then
  if call('EXISTS', from) == 0 then return 0 end
  call('RENAME', from, free(to))
  return 1
end
if what == 'field' then
  if call('HGET', from, place) ~= value then return 0 end
  keep(place, value)
  call('HDEL', from, place)
elseif what == 'message' then  -- its place in the list stays
  if call('LINDEX', from, place) ~= value then return 0 end
  keep(place, value)
  call('LSET', from, place, rest)
elseif what == 'element' then
  if call('LREM', from, 1, value) == 0 then return 0 end
  keep(place, value)
elseif what == 'entry' then  -- of the flush queue: its consumers get it no more
  local entry = call('XRANGE', from, place, place)[1]
  if not entry then return 0 end
  local size = 0
  for i = 1, #entry[2], 2 do
    keep(place .. ' ' .. entry[2][i], entry[2][i + 1])
    if entry[2][i] == 'body' then size = #entry[2][i + 1] end
  end
  for _, group in ipairs(call('XINFO', 'GROUPS', from)) do call('XACK', from, group[2], place) end
  call('XDEL', from, place)
  call('HINCRBY', from:sub(1, -2) .. 'n', 'bytes' .. from:sub(-1), -size)
end
return 1
