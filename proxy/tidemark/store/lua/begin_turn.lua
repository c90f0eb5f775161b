-- Arguments: "", 0, own or "" for the family's head, tenant, milliseconds or 0 to release the lease, the caller's
-- token of hex. Answer: own or "", its record, the lease's name and value; nil if another turn is under way;
-- nothing if the conversation is another tenant's. A caller that repeats its token has the turn already. The lease
-- of a conversation that only begins is "turn:". At the end: how many messages the name's conversation had if parts
-- of it are gone, "unknown", or "".
local at = ARGV[3] == '' and redis.call('GET', P .. ':d')
local conv = follow(ARGV[3] ~= '' and ARGV[3] or at)
local lost = ''
if at and not conv and redis.call('EXISTS', key('x', at)) == 0 then
  lost = redis.call('HGET', key('c', at), 'count') or 'unknown'
end
-- A forgotten conversation is there only for its forks.
if conv and redis.call('HEXISTS', key('c', conv.own), 'stem') == 1 then conv = nil end
local own = conv and conv.own or ''
local record = conv and redis.call('HGETALL', key('c', own)) or {}
if conv then record[#record + 1], record[#record + 2] = 'count', tostring(conv.count) end
if conv and redis.call('HGET', key('c', own), 'tenant') ~= ARGV[4] then return {} end
if not conv and ARGV[3] ~= '' then return {} end
local lease = 'turn:' .. own
local current = redis.call('GET', key('l', lease))
local ours = current and current:match('^%d+%-(%x+):') == ARGV[6]
if ARGV[5] == '0' then return {ours and redis.call('DEL', key('l', lease)) or 0} end
if current and current ~= 'void' then return {own, record, lease, ours and current or false, lost} end
local value = redis.call('INCR', P .. ':f') .. '-' .. ARGV[6] .. ':'
redis.call('EXPIRE', P .. ':f', 604800)
redis.call('SET', key('l', lease), value, 'PX', ARGV[5])
return {own, record, lease, value, lost}
