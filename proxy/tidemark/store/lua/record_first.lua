-- Stands before the tree in record.lua, with the same arguments: the usual first turn of a conversation. It checks
-- that nothing is stored of all that record.lua looks for; then it only writes.
do
  local call, P, H = redis.call, KEYS[1], ARGV[1]
  local expected, skip, ttl, age, created, tenant, owner, model, total, client_name, head, lease, systems = unpack(facts)
  local beside = client_name .. head .. lease .. facts[17]  -- stored history has rules of its own; thinking is rarely bound at first
  -- The expected id must be the one that begins here: record.lua writes where another id leads.
  local function own_id() return ('%02x'):rep(8):format(H:byte(1, 8)) end
  if skip == 0 and age == 0 and beside == '' and H ~= '' and expected == own_id() then
    local own, N = ':' .. expected, #H / 16
    local c, h, m, t, y = P .. ':c' .. own, P .. ':h' .. own, P .. ':m' .. own, P .. ':t' .. own, P .. ':y' .. own
    local new_keys = {c, h, m, t, y, P .. ':x' .. own, P .. ':a' .. own, P .. ':r' .. own, P .. ':q' .. own, P .. ':b' .. own}
    for pos = N, math.max(1, N - 63), -1 do new_keys[#new_keys + 1] = P .. ':n:' .. H:sub(16 * pos - 15, 16 * pos) end
    if count_existing(new_keys) == 0 then
      local lasting = ttl > 0 and {'EX', ttl} or {}
      call('HSET', c, 'base', 0, 'count', N, 'parent', '', 'tenant', tenant, 'owner', owner, 'model', model,
        'touched', call('TIME')[1], 'created', created, 'updated', created, 'tokens', total, 'turns', 1, 'summaries', 0,
        unpack(facts[18] ~= '' and {'sent', facts[18]} or {}))
      if facts[20] ~= '' then call('HSET', c, 'sender', facts[20]) end
      if facts[19] ~= '' and facts[19] ~= ttl then call('HSET', c, 'idle', ttl) end
      call('SET', h, H, unpack(lasting))
      for from = 6 + 2 * systems, #ARGV, 1000 do  -- unpack has a limit
        call('RPUSH', m, unpack(ARGV, from, math.min(from + 999, #ARGV)))
      end
      call('RPUSH', t, ARGV[4])
      for i = 6, 5 + 2 * systems, 2 do call('HSETNX', y, ARGV[i], ARGV[i + 1]) end
      for i = 11, math.min(12, #new_keys) do call('SET', new_keys[i], expected, unpack(lasting)) end
      if ttl > 0 then
        for i = 1, systems > 0 and 5 or 4 do
          if i ~= 2 then call('EXPIRE', new_keys[i], ttl) end
        end
      end
      return expected .. '+' .. keep_answer(expected, ttl, answered)
    end
  end
end
