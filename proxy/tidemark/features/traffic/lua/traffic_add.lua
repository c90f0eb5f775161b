-- Arguments: prefix; worker, number of its batch, seconds that the number is stored, most names of a kind, name of all
-- others, minutes that a name is stored, levels, then for each level its name, minutes of a period, seconds that it is
-- stored; then minute, model, tenant, number of fields, and as often field and amount, repeated. Adds figures to the
-- periods of each level: of all requests, of the model and of the tenant. Does nothing if this batch was added before;
-- answers whether it did.
local prefix = KEYS[1]
local number_key = prefix .. ':b:' .. ARGV[1]
local last = redis.call('GET', number_key)
if last and tonumber(last) >= tonumber(ARGV[2]) then
  return 0
end
local most, other, kept_minutes = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local first = 8 + 3 * tonumber(ARGV[7])

-- Returns the name that figures go by, and notes when it was last used. A kind is m (models) or t (tenants).
local function listed(kind, name, minute)
  local index = prefix .. ':n:' .. kind
  local score = redis.call('ZSCORE', index, name)
  if not score and name ~= other then
    local count = redis.call('ZCARD', index)
    if count >= most then
      redis.call('ZREMRANGEBYSCORE', index, '-inf', minute - kept_minutes)
      count = redis.call('ZCARD', index)
      if redis.call('ZSCORE', index, other) then
        count = count - 1
      end
    end
    if count >= most or (kind == 't' and redis.call('EXISTS', prefix .. ':x:' .. redis.sha1hex(name)) == 1) then
      return listed(kind, other, minute)
    end
  end
  if not score or tonumber(score) < minute then
    redis.call('ZADD', index, minute, name)
    redis.call('EXPIRE', index, 60 * kept_minutes)
  end
  return name
end

-- By key, the amounts of its fields: commands cost more than sums, and most cells share the rows of all and of a model.
local sums, kept_seconds, place = {}, {}, first
while place < #ARGV do
  local minute, last_field = tonumber(ARGV[place]), place + 3 + 2 * tonumber(ARGV[place + 3])
  local rows = {''}
  for offset, kind in ipairs({'m', 't'}) do
    local name = ARGV[place + offset]
    if name ~= '' then
      rows[#rows + 1] = ':' .. kind .. ':' .. listed(kind, name, minute)
    end
  end
  for level = 8, first - 1, 3 do
    local period = string.format('%d', math.floor(minute / tonumber(ARGV[level + 1])))
    for _, row in ipairs(rows) do
      local key = prefix .. ':' .. ARGV[level] .. ':' .. period .. row
      local amounts = sums[key] or {}
      sums[key], kept_seconds[key] = amounts, ARGV[level + 2]
      for field = place + 4, last_field, 2 do
        amounts[ARGV[field]] = (amounts[ARGV[field]] or 0) + tonumber(ARGV[field + 1])
      end
    end
  end
  place = last_field + 1
end
for key, amounts in pairs(sums) do
  for field, amount in pairs(amounts) do
    redis.call('HINCRBY', key, field, string.format('%.0f', amount))
  end
  redis.call('EXPIRE', key, kept_seconds[key])
end
redis.call('SET', number_key, ARGV[2], 'EX', ARGV[3])
return 1
