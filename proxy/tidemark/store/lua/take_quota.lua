-- Arguments: prefix; lease, its seconds, then for each bound: name, requests a minute, tokens a day, concurrent; 0 for no
-- bound. Answer: what is used up ("" for nothing), whose bound (from 0), seconds until a retry, then for each bound:
-- requests, seconds until they are forgotten, tokens. Nothing is counted if a bound is used up. The minute slides by
-- seconds, and all times are the server's, so that replicas with other clocks agree.
local prefix, lease, life = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local second, now = tonumber(time[1]), tonumber(time[1]) + tonumber(time[2]) / 1000000
local day, midnight = math.floor(second / 86400), 86400 - now % 86400
local bounds, kind, which, retry = {}, '', 0, 0
local function refuse(bound, what, seconds)
  if seconds > retry then kind, which, retry = what, bound, seconds end
end
for at = 3, #ARGV, 4 do
  local bound = {rate = tonumber(ARGV[at + 1]), daily = tonumber(ARGV[at + 2]), most = tonumber(ARGV[at + 3])}
  local tail = ARGV[at] == '' and '' or ':' .. ARGV[at]
  bound.r, bound.c, bound.t = prefix .. ':r' .. tail, prefix .. ':c' .. tail, prefix .. ':t' .. tail
  bound.requests, bound.tokens, bound.last = 0, 0, 0
  if bound.rate > 0 then
    local first, flat = nil, redis.call('HGETALL', bound.r)
    for i = 1, #flat, 2 do
      local begun = tonumber(flat[i])
      if begun <= second - 60 or begun > second + 60 then
        redis.call('HDEL', bound.r, flat[i])
      else
        bound.requests = bound.requests + tonumber(flat[i + 1])
        bound.last = math.max(bound.last, begun)
        first = math.min(first or begun, begun)
      end
    end
    if bound.requests >= bound.rate then refuse(#bounds, 'requests', first + 60 - now) end
  end
  if bound.daily > 0 then
    local entry = redis.call('HMGET', bound.t, 'day', 'tokens')
    bound.tokens = tonumber(entry[1]) == day and tonumber(entry[2]) or 0
    if bound.tokens >= bound.daily then refuse(#bounds, 'tokens', midnight) end
  end
  if bound.most > 0 then
    redis.call('ZREMRANGEBYSCORE', bound.c, '-inf', now)
    if redis.call('ZCARD', bound.c) >= bound.most then refuse(#bounds, 'concurrent', 1) end
  end
  bounds[#bounds + 1] = bound
end
local answer = {kind, which, tostring(retry), tostring(midnight)}
for _, bound in ipairs(bounds) do
  if kind == '' then
    if bound.rate > 0 then
      redis.call('HINCRBY', bound.r, second, 1)
      redis.call('EXPIRE', bound.r, 61)
      bound.requests, bound.last = bound.requests + 1, second
    end
    if bound.most > 0 then
      redis.call('ZADD', bound.c, now + life, lease)
      redis.call('EXPIRE', bound.c, life)
    end
  end
  answer[#answer + 1] = bound.requests
  answer[#answer + 1] = tostring(math.max(0, bound.last + 60 - now))
  answer[#answer + 1] = bound.tokens
end
return answer
