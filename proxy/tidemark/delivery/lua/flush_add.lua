-- Arguments: key, seconds that the mark stays (0 for no limit), most entries, most bytes, tenant, conversation, time,
-- body, owner. Answer: the entry's id; nil if an entry of that key was added before. Without a body the key is only
-- marked.
local key, ttl = ARGV[1], tonumber(ARGV[2])
local mark = P .. ':k:' .. key
if redis.call('EXISTS', mark) == 1 then
  redis.call('HDEL', P .. ':o', key)
  return false
end
local id = ''
if ARGV[8] ~= '' then
  local entry = {'key', key, 'tenant', ARGV[5], 'conversation', ARGV[6], 'at', ARGV[7], 'only', '', 'owner', ARGV[9], 'body', ARGV[8]}
  id = append(STREAM, entry, tonumber(ARGV[3]), tonumber(ARGV[4]))
end
redis.call('SET', mark, id)
if ttl > 0 then redis.call('EXPIRE', mark, ttl) end
redis.call('HDEL', P .. ':o', key)  -- last, because a script that fails midway undoes nothing
return id
