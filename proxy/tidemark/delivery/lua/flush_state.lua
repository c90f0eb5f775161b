-- Answer: length, bytes, dead letters, notes, milliseconds now, counts as field, value ..., and for each group: name,
-- entries waiting (-1: the server cannot tell), pending, milliseconds at which the oldest of both was queued (0:
-- none).
local function queued(id) return id and id:match('^%d+') or '0' end
local consumers = {}
for _, flat in ipairs(groups()) do
  local group = fields(flat)
  local last = group['last-delivered-id']
  local oldest = redis.call('XPENDING', STREAM, group.name)[2]
  local info = redis.call('XINFO', 'STREAM', STREAM)
  local newest = fields(info)['last-generated-id']
  local waiting = group.lag or -1
  if newer(newest, last) then
    local following = redis.call('XRANGE', STREAM, '(' .. last, '+', 'COUNT', 1)[1]
    if not following then waiting = 0 elseif waiting == 0 then waiting = 1 end
    oldest = oldest or following and following[1]
  else
    waiting = 0
  end
  consumers[#consumers + 1] = {group.name, waiting, group.pending, queued(oldest)}
end
local time = redis.call('TIME')
local bytes = redis.call('HGET', COUNTS, size_field(STREAM)) or 0
return {redis.call('XLEN', STREAM), tonumber(bytes), redis.call('XLEN', DEAD), redis.call('HLEN', P .. ':o'),
  tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), redis.call('HGETALL', COUNTS), consumers}
