package redisbroker

import "github.com/redis/go-redis/v9"

// Each script is one step at the server: nobody else's commands come between its own. All get the stream as key, and as first
// arguments the group and the consumer; nobody ("~") is the consumer that has what was given back.

// beginScript makes stream and group where there are none, and the consumer.
var beginScript = redis.NewScript(`
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP') then return made end
return redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], ARGV[1], ARGV[2])
`)

// pullScript takes messages, at most ARGV[3] of them, until they have ARGV[4] bytes or the last one more: what was given back,
// then, where ARGV[6] is 1, what was idle for a lease (ARGV[5], ms), then what is new. It returns whether the group was made
// anew, the entries that were trimmed unread or given back and trimmed, and the messages: id, count of deliveries, fields.
//
// Who took part in a group has a consumer there. So where the consumer is new, the group is another one.
//
// What was trimmed unread shows before the next new entry is read: the group lags by more entries than the stream has.
var pullScript = redis.NewScript(`
local key, group, me = KEYS[1], ARGV[1], ARGV[2]
local n, room, lease = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
if redis.call('XGROUP', 'CREATECONSUMER', key, group, me) == 1 then return {1, 0, {}} end
local out, gone = {}, 0
local function add(id, count, fields)
	out[#out+1] = {id, count, fields}
	for _, f in ipairs(fields) do room = room - #f end
end
local function take(pending)
	for _, p in ipairs(pending) do
		if #out >= n or room <= 0 then return end
		local got = redis.call('XCLAIM', key, group, me, 0, p[1])
		if got[1] then
			add(p[1], p[4] + 1, got[1][2])
		else
			gone = gone + 1
			redis.call('XACK', key, group, p[1])
		end
	end
end
take(redis.call('XPENDING', key, group, '-', '+', n, '~'))
if ARGV[6] == '1' then take(redis.call('XPENDING', key, group, 'IDLE', lease, '-', '+', n)) end
if #out < n and room > 0 then
	for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
		local t, len = {}, redis.call('XLEN', key)
		for i = 1, #g, 2 do t[g[i]] = g[i+1] end
		if t['name'] == group and t['entries-read'] and t['lag'] and t['lag'] > len then
			gone = gone + t['lag'] - len
			redis.call('XGROUP', 'SETID', key, group, t['last-delivered-id'], 'ENTRIESREAD', t['entries-read'] + t['lag'] - len)
		end
	end
end
while #out < n and room > 0 do
	local r = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', 1, 'STREAMS', key, '>')
	if not r then break end
	add(r[1][2][1][1], 1, r[1][2][1][2])
end
return {0, gone, out}
`)

// extendScript says for each id: 1, extended; 2, trimmed meanwhile; 0, somebody else has it. XCLAIM alone would take it from
// there.
var extendScript = redis.NewScript(`
local key, group, me, said = KEYS[1], ARGV[1], ARGV[2], {}
for i = 3, #ARGV do
	local id, n = ARGV[i], 0
	if #redis.call('XPENDING', key, group, id, id, 1, me) == 1 then
		n = 2
		if #redis.call('XCLAIM', key, group, me, 0, id, 'JUSTID') == 1 then n = 1 end
	end
	said[#said+1] = n
end
return said
`)

// settleScript settles entries: from ARGV[3] on an id, the count of the delivery that is settled, and the count to go on from
// when it is given back, or -1: an ack. A give-back of what was delivered again meanwhile, here or elsewhere, finds another
// holder or count: then it stays where it is. It returns how many of those that are given back were trimmed meanwhile.
var settleScript = redis.NewScript(`
local key, group, me, gone = KEYS[1], ARGV[1], ARGV[2], 0
for i = 3, #ARGV, 3 do
	local id, p = ARGV[i], {}
	if ARGV[i+2] == '-1' then
		redis.call('XACK', key, group, id)
	else
		p = redis.call('XPENDING', key, group, id, id, 1, me)
	end
	if #p == 1 and p[1][4] == tonumber(ARGV[i+1]) then
		if #redis.call('XCLAIM', key, group, '~', 0, id, 'RETRYCOUNT', ARGV[i+2], 'JUSTID') == 0 then gone = gone + 1 end
	end
end
return gone
`)

// leaveScript gives back all that the consumer has, known to it or not, and deletes it.
var leaveScript = redis.NewScript(`
local key, group, me = KEYS[1], ARGV[1], ARGV[2]
for _, p in ipairs(redis.call('XPENDING', key, group, '-', '+', 1000000, me)) do
	redis.call('XCLAIM', key, group, '~', 0, p[1], 'RETRYCOUNT', p[4], 'JUSTID')
end
return redis.call('XGROUP', 'DELCONSUMER', key, group, me)
`)

// lagScript returns how many entries are pending and how many unread; -1 where the server does not know. It acks what is not
// there first, so that it is refused where writing is: else the lag would say that there is contact, and each pull that there is
// none.
var lagScript = redis.NewScript(`
redis.call('XACK', KEYS[1], ARGV[1], '0-0')
for _, x in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
	local t = {}
	for i = 1, #x, 2 do t[x[i]] = x[i+1] end
	if t['name'] == ARGV[1] then
		local lag = t['lag'] or -1
		return {t['pending'], math.min(lag, redis.call('XLEN', KEYS[1]))}
	end
end
return {-1, -1}
`)
