-- KEYS[1]: a stream. Answer: its newest id ever, and for each group its name, the last id that was delivered, how many
-- entries follow (-1: the server cannot tell), and what is pending: {id, consumer, idle milliseconds, deliveries}. Nothing if there is no such stream.
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end
local name = KEYS[1]
if redis.call('TYPE', name)['ok'] ~= 'stream' then return {} end
local groups = {}
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', name)) do
  local group = fields(flat)
  local pending = group.pending > 0 and redis.call('XPENDING', name, group.name, '-', '+', group.pending) or {}
  groups[#groups + 1] = {group.name, group['last-delivered-id'], group.lag or -1, pending}
end
return {fields(redis.call('XINFO', 'STREAM', name))['last-generated-id'], groups}
