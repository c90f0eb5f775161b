-- Stands before all scripts of the flush queue; each has the prefix as its only key.
local P = KEYS[1]
local STREAM, DEAD, COUNTS = P .. ':s', P .. ':d', P .. ':n'

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
local function groups()
  if redis.call('EXISTS', STREAM) == 0 then return {} end
  return redis.call('XINFO', 'GROUPS', STREAM)
end
local function size_field(stream) return 'bytes' .. stream:sub(-1) end
local function remove(stream, id, entry)
  redis.call('XDEL', stream, id)
  redis.call('HINCRBY', COUNTS, size_field(stream), -#(fields(entry)['body'] or ''))
end
local function append(stream, entry, most, bytes)
  local id = redis.call('XADD', stream, '*', unpack(entry))
  local size = redis.call('HINCRBY', COUNTS, size_field(stream), #(fields(entry)['body'] or ''))
  while redis.call('XLEN', stream) > 1 and (redis.call('XLEN', stream) > most or size > bytes) do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if stream == STREAM then
      for _, flat in ipairs(groups()) do
        local group = fields(flat)
        local delivered = not newer(oldest[1], group['last-delivered-id'])
        if not delivered or #redis.call('XPENDING', STREAM, group.name, oldest[1], oldest[1], 1) > 0 then
          redis.call('HINCRBY', COUNTS, 'lost:' .. group.name, 1)
        end
      end
    end
    remove(stream, oldest[1], oldest[2])
    size = tonumber(redis.call('HGET', COUNTS, size_field(stream)))
  end
  return id
end
