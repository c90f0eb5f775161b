-- Arguments: reader, milliseconds (0 gives the lead up). Answer: 1 if the reader leads now.
local lead = P .. ':l'
local holder = redis.call('GET', lead)
if tonumber(ARGV[2]) == 0 then
  if holder == ARGV[1] then redis.call('DEL', lead) end
  return 0
end
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', lead, ARGV[1], 'PX', ARGV[2])
return 1
