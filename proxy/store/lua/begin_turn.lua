-- "", 0, own or "" for the family's head, tenant, milliseconds or 0 to give the turn back, the taker's word of hex -> own or
-- "", its record, the lease's name and value; no value where somebody else's turn is under way, nothing at all where the
-- conversation is another tenant's. Who says the same word again has the turn already. A conversation that only begins has
-- the lease "turn:"
local conv = follow(ARGV[3] ~= '' and ARGV[3] or redis.call('GET', P .. ':d'))
if conv and redis.call('HEXISTS', key('c', conv.own), 'stem') == 1 then conv = nil end  -- forgotten: others rest on it
local own = conv and conv.own or ''
local record = conv and redis.call('HGETALL', key('c', own)) or {}
if conv then record[#record + 1], record[#record + 2] = 'count', tostring(conv.count) end
if conv and redis.call('HGET', key('c', own), 'tenant') ~= ARGV[4] then return {} end
if not conv and ARGV[3] ~= '' then return {} end
local lease = 'turn:' .. own
local held = redis.call('GET', key('l', lease))
local ours = held and held:match('^%d+%-(%x+):') == ARGV[6]
if ARGV[5] == '0' then return {ours and redis.call('DEL', key('l', lease)) or 0} end
if held and held ~= 'void' then return {own, record, lease, ours and held or nil} end
local value = redis.call('INCR', P .. ':f') .. '-' .. ARGV[6] .. ':'
redis.call('EXPIRE', P .. ':f', 604800)
redis.call('SET', key('l', lease), value, 'PX', ARGV[5])
return {own, record, lease, value}
