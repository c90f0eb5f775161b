-- Arguments: "", 0, own, now. Answer: 1, or 0 if there is no such conversation. The conversation is deleted.
-- Messages that its forks share stay as their beginning, without a record, until the last of the forks is forgotten
-- too.
local conv = follow(ARGV[3])
if not conv then return 0 end

local function delete(names)  -- one by one, for a slot that moves (several.lua)
  for _, name in ipairs(names) do redis.call('DEL', name) end
end

local function aside(name) return 'tm:aside:' .. name:sub(4) end  -- what of it was unreadable (upkeep_aside.lua)

local function needed(of)  -- how many messages other branches share with it
  local most = 0
  for _, child in ipairs(redis.call('SMEMBERS', key('b', of))) do
    local branch = open(child)
    if branch and branch.parent == of then
      most = math.max(most, branch.base)
    else
      redis.call('SREM', key('b', of), child)
    end
  end
  return most
end

local function drop(of, branch, keep)  -- its messages after the first `keep` of its own, and their summaries
  local h = redis.call('GET', key('h', of)) or ''
  for from = 16 * keep + 1, #h, 16 do
    local hash = h:sub(from, from + 15)
    delete({key('n', hash), key('a', hex(hash)), key('g', hash)})
  end
  for _, kind in ipairs({'m', 't', 'y', 'o', 'z', 'j', 'p', 'k', 'r', 'q', 'v', 'c'}) do delete({aside(key(kind, of))}) end
  for _, kind in ipairs({'r', 'q'}) do
    for _, ref in ipairs(redis.call('LRANGE', key(kind, of), 0, -1)) do
      local elsewhere = keep > 0 or (branch.parent ~= '' and redis.call('LPOS', key(kind, branch.parent), ref))
      if position(ref) > branch.base + keep or not elsewhere then
        delete({summary(ref), summary(ref, 'w'), summary(ref, 'u'), aside(summary(ref)), aside(summary(ref, 'w'))})
        redis.call('LREM', key(kind, of), 0, ref)
      end
    end
  end
  delete({key('t', of), key('y', of), key('o', of), key('l', of), key('l', 'turn:' .. of), key('z', of), key('j', of), key('p', of), key('k', of)})
  if keep == 0 then
    for _, from in ipairs(redis.call('SMEMBERS', key('e', of))) do redis.call('DEL', key('a', from)) end
    redis.call('DEL', key('e', of))
    for _, kind in ipairs({'c', 'h', 'm', 'r', 'q', 'b', 'v'}) do redis.call('DEL', key(kind, of)) end
  else
    redis.call('SET', key('h', of), h:sub(1, 16 * keep), 'KEEPTTL')
    redis.call('LTRIM', key('m', of), 0, keep - 1)
    for _, pos in ipairs(redis.call('HKEYS', key('v', of))) do
      if tonumber(pos) > branch.base + keep then redis.call('HDEL', key('v', of), pos) end
    end
  end
end

local up = conv.own
local first = true
while up and up ~= '' do
  local branch = open(up)
  if not branch then break end
  local stem = redis.call('HGET', key('c', up), 'stem')
  if not first and not stem then break end
  local most = needed(up)
  local keep = math.max(0, most - branch.base)
  drop(up, branch, keep)
  if redis.call('GET', P .. ':d') == up then redis.call('DEL', P .. ':d') end
  if first then redis.call('SET', key('x', up), ARGV[4], 'EX', 600) end
  first = false
  if keep > 0 then
    redis.call('HDEL', key('c', up), 'name', 'model', 'turns', 'tokens', 'summaries', 'last_summary', 'updated', 'bound', 'sent', 'idle', 'sender')
    redis.call('HSET', key('c', up), 'count', branch.base + keep, 'stem', 1)
    break
  end
  if branch.parent ~= '' then redis.call('SREM', key('b', branch.parent), up) end
  drop_state(up)
  up = branch.parent
end
return 1
