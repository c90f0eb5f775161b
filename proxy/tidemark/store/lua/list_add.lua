-- Arguments: KEYS[1] a list, KEYS[2] what was deleted from it; n x (time of use, id). Answer: the ids that are not
-- listed, because they were deleted and not used since: another worker may have deleted what this one writes late.
local entries, refused = {}, {}
local any = redis.call('EXISTS', KEYS[2]) == 1
for i = 1, #ARGV, 2 do
  local deleted = any and redis.call('ZSCORE', KEYS[2], ARGV[i + 1])
  if deleted and tonumber(ARGV[i]) <= tonumber(deleted) then
    refused[#refused + 1] = ARGV[i + 1]
  else
    entries[#entries + 1], entries[#entries + 2] = ARGV[i], ARGV[i + 1]
  end
end
for from = 1, #entries, 1000 do  -- unpack has a limit
  redis.call('ZADD', KEYS[1], unpack(entries, from, math.min(from + 999, #entries)))
end
return refused
