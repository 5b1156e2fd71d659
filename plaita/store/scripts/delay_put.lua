-- KEYS 1 delayed, 2 bodies. ARGV 1 member, 2 due in ms, 3 q|w, 4.. entry fields. ok: due at ms
-- include: time
-- include: slice
-- include: delayed
local due = now_ms() + ARGV[2]
delay(KEYS[1], KEYS[2], ARGV[1], due, ARGV[3], slice(ARGV, 4, #ARGV))
return {'ok', due}
