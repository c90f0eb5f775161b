-- KEYS[1]: the key. Arguments: cursor ("" at first), how many elements. Answer: type ("none" if there is no key),
-- its time to live in milliseconds (negative for none), next cursor ("" at the end), elements: of a hash and a sorted set in
-- pairs, of a stream as {id, {field, value, ...}}.
local name, cursor, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local scans = {hash = 'HSCAN', set = 'SSCAN', zset = 'ZSCAN'}
local kind = redis.call('TYPE', name)['ok']
local items, following = {}, ''
if kind == 'string' then
  items = {redis.call('GET', name)}
elseif kind == 'list' then
  local first = tonumber(cursor) or 0
  items = redis.call('LRANGE', name, first, first + count - 1)
  if #items == count then following = tostring(first + count) end
elseif kind == 'stream' then
  items = redis.call('XRANGE', name, cursor == '' and '-' or cursor, '+', 'COUNT', count)
  if #items == count then following = '(' .. items[#items][1] end
elseif scans[kind] then
  local page = redis.call(scans[kind], name, cursor == '' and '0' or cursor, 'COUNT', count)
  items = page[2]
  if page[1] ~= '0' then following = page[1] end
end
return {kind, redis.call('PTTL', name), following, items}
