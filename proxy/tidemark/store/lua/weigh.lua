-- Arguments: "", 0, own. Answer: the bytes of memory of a conversation's own parts; 0 if it is gone, or the server
-- does not report them.
local sum = 0
for _, kind in ipairs({'c', 'h', 'm', 't', 'y', 'o', 'v'}) do
  local size = redis.pcall('MEMORY', 'USAGE', KEYS[1] .. ':' .. kind .. ':' .. ARGV[3], 'SAMPLES', 0)
  if type(size) == 'number' then sum = sum + size end
end
return sum
