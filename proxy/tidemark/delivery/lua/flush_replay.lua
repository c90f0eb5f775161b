-- Arguments: 'd' or 's', id, consumer ('' for all), most entries, most bytes. Answer: the new id; nil if there is
-- no such entry. A dead letter goes back to its own consumer, and is removed from the dead letters.
local source = ARGV[1] == 'd' and DEAD or STREAM
local original = redis.call('XRANGE', source, ARGV[2], ARGV[2])[1]
if not original then return false end
local of = fields(original[2])
local entry = {'key', of.key, 'tenant', of.tenant, 'conversation', of.conversation, 'at', of.at,
  'only', ARGV[1] == 'd' and of.consumer or ARGV[3], 'body', of.body}
local id = append(STREAM, entry, tonumber(ARGV[4]), tonumber(ARGV[5]))
if ARGV[1] == 'd' then remove(DEAD, ARGV[2], original[2]) end
return id
