-- KEYS[1]: the beginning of the keys' names. Arguments: names. Answer: for each that exists its name, type, time to live in
-- milliseconds (negative for none) and content: what the type has, in pairs for a hash and a sorted set. Nothing if the
-- first does not exist. All is as it was at one instant.
local call = redis.call
local reads = {
  string = function(name) return {call('GET', name)} end,
  list = function(name) return call('LRANGE', name, 0, -1) end,
  hash = function(name) return call('HGETALL', name) end,
  set = function(name) return call('SMEMBERS', name) end,
  zset = function(name) return call('ZRANGE', name, 0, -1, 'WITHSCORES') end,
}
local answer = {}
for i, name in ipairs(ARGV) do
  local kind = call('TYPE', name)['ok']
  if reads[kind] then
    answer[#answer + 1] = {name, kind, call('PTTL', name), reads[kind](name)}
  elseif i == 1 then
    return {}
  end
end
return answer
