-- Stands first in the scripts that ask for several keys at once. While a slot moves to this node, the server refuses
-- a command of several keys if it lacks one of them, although all that there is has come over before the script.
local function is_refused(answer) return type(answer) == 'table' and answer.err end
local function mget(names)
  local values = redis.pcall('MGET', unpack(names))
  if not is_refused(values) then return values end
  values = {}
  for i, name in ipairs(names) do values[i] = redis.call('GET', name) end
  return values
end
local function count_existing(names)
  local count = redis.pcall('EXISTS', unpack(names))
  if not is_refused(count) then return count end
  count = 0
  for _, name in ipairs(names) do count = count + redis.call('EXISTS', name) end
  return count
end
