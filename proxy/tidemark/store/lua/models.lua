-- Arguments: prefix; new version. Answer: version, settings, observations; each of the latter two as field, value,
-- ... A store without a version is new, or was emptied: it begins an epoch, if it may be written.
local all = KEYS[1]
local version = redis.call('GET', all .. ':v')
if not version then
  version = redis.pcall('SET', all .. ':v', ARGV[1])['ok'] and ARGV[1] or ''
end
return {version, redis.call('HGETALL', all .. ':o'), redis.call('HGETALL', all .. ':r')}
