-- Put before record.lua: its many small arguments come as one msgpack array, since each costs more on its way than it says.
-- No bytes are among them, which the server's reader of msgpack does not know. A time is text: it stays as it was written.
local facts = cmsgpack.unpack(ARGV[3])
