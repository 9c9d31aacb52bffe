package main

import "github.com/longshoremq/longshore/consumer"

// A system is one thing that is measured, in a process of its own.
type system struct {
	name string
	n    int // messages in full length
	run  func(n int, url string) sample
}

// A group's systems take turns.
type group struct {
	name string
	// server runs a broker with n messages, and calls do with its address; nil: none is needed.
	server  func(n int, do func(url string)) error
	systems []system
	figures func(round map[string]sample) []figure
}

// A figure is one line of output.
type figure struct {
	name   string
	value  float64
	target float64
	least  bool // the value must be at least the target; otherwise at most
	none   bool // no target: for comparison

	low, high float64 // of all rounds
}

func atMost(name string, value, target float64) figure {
	return figure{name: name, value: value, target: target}
}
func atLeast(name string, value, target float64) figure {
	return figure{name: name, value: value, target: target, least: true}
}
func show(name string, value float64) figure { return figure{name: name, value: value, none: true} }

func (f figure) ok() bool {
	return f.none || f.least && f.value >= f.target || !f.least && f.value <= f.target
}

func local(name string, n int, run func(n int) sample) system {
	return system{name, n, func(n int, _ string) sample { return run(n) }}
}

var groups = append([]group{
	{name: "handoff", figures: handoffFigures, systems: []system{
		local("channel", 3_000_000, func(n int) sample { return channelPool(n, noop) }),
		local("longshore", 10_000_000, func(n int) sample { return longshoreChunks(n, noop) }),
		local("longshore_single", 2_000_000, func(n int) sample { return longshoreSingle(n, 0, noop) }),
		local("ants", 1_000_000, func(n int) sample { return antsPool(n, noop) }),
		local("pond", 1_000_000, func(n int) sample { return pondPool(n, noop) }),
		local("errgroup", 1_000_000, func(n int) sample { return errgroupPool(n, noop) }),
		local("semaphore", 1_000_000, func(n int) sample { return semaphoreOf(n, noop) }),
		local("workerpool", 1_000_000, func(n int) sample { return workerPool(n, noop) }),
	}},
	{name: "sleep", figures: sleepFigures, systems: []system{
		local("channel", 200_000, func(n int) sample { return channelPool(n, millisecond) }),
		local("longshore", 200_000, func(n int) sample { return longshoreSingle(n, warmUp, millisecond) }),
		local("longshore_cold", 200_000, func(n int) sample { return longshoreSingle(n, 0, millisecond) }),
		local("ants", 200_000, func(n int) sample { return antsPool(n, millisecond) }),
		local("pond", 200_000, func(n int) sample { return pondPool(n, millisecond) }),
		local("errgroup", 200_000, func(n int) sample { return errgroupPool(n, millisecond) }),
		local("semaphore", 200_000, func(n int) sample { return semaphoreOf(n, millisecond) }),
		local("workerpool", 200_000, func(n int) sample { return workerPool(n, millisecond) }),
	}},
	{name: "engine", figures: engineFigures, systems: []system{
		local("serial_64", 4_000_000, inHeap(serviceHeap, func(n int) sample { return serial(n, 64, noop) })),
		local("engine_64", 4_000_000, inHeap(serviceHeap, func(n int) sample { return engine(n, 64, 1, noop) })),
		local("serial_512", 4_000_000, inHeap(serviceHeap, func(n int) sample { return serial(n, 512, noop) })),
		local("engine_512", 4_000_000, inHeap(serviceHeap, func(n int) sample { return engine(n, 512, 1, noop) })),
		local("serial_no_heap", 4_000_000, func(n int) sample { return serial(n, 64, noop) }),
		local("engine_no_heap", 4_000_000, func(n int) sample { return engine(n, 64, 1, noop) }),
	}},
	{name: "hooks", figures: hookFigures, systems: []system{
		local("unhooked", 4_000_000, rebuilt("nobody", false)),
		local("hooked", 4_000_000, rebuilt("nobody", true)),
		local("nobody", 4_000_000, followed(nobody)),
		local("around", 4_000_000, followed(around)),
		local("ended", 4_000_000, followed(ended)),
		local("observed", 4_000_000, followed(observed)),
		local("traced_none", 4_000_000, followed(traced(-1))),
		local("traced_1_percent", 4_000_000, followed(traced(0.01))),
		local("traced_all", 400_000, followed(traced(1))),
		local("nobody_with_header", 4_000_000, followed(nobody, notSampled)),
		local("traced_unsampled", 4_000_000, followed(traced(0.01), notSampled)),
	}},
	{name: "page", figures: pageFigures, systems: []system{
		local("page_none", 20_000_000, followed(counted)),
		local("page_no_tab", 20_000_000, paged(0)),
		local("page_3_tabs", 20_000_000, paged(3)),
	}},
	{name: "batch", figures: batchFigures, systems: []system{
		local("one_by_one", 4_000_000, inHeap(serviceHeap, func(n int) sample { return engine(n, 0, 1, noop) })),
		local("batches", 4_000_000, inHeap(serviceHeap, inBatches)),
	}},
	{name: "order", figures: orderFigures, systems: []system{
		local("none", 2_000_000, inHeap(serviceHeap, func(n int) sample { return inOrder(n, consumer.OrderNone, noop) })),
		local("key", 2_000_000, inHeap(serviceHeap, func(n int) sample { return inOrder(n, consumer.OrderKey, noop) })),
		local("partition", 1_000_000, inHeap(serviceHeap, func(n int) sample { return inOrder(n, consumer.OrderPartition, noop) })),
		local("key_5ms", 60_000, func(n int) sample { return inOrder(n, consumer.OrderKey, fiveMilliseconds) }),
		local("partition_5ms", 2_000, func(n int) sample { return inOrder(n, consumer.OrderPartition, fiveMilliseconds) }),
	}},
	{name: "engine_sleep", figures: engineSleepFigures, systems: []system{
		local("channel", 200_000, func(n int) sample { return byChannel(n, millisecond) }),
		local("engine", 200_000, func(n int) sample { return engine(n, 0, workers, millisecond) }),
	}},
	{name: "jetstream", server: withNATS, figures: jetstreamFigures, systems: []system{
		{"natsgo_consume", 500_000, func(n int, url string) sample { return natsConsume(url, n) }},
		{"longshore", 500_000, func(n int, url string) sample { return longshoreConsume(url, n) }},
	}},
	{name: "knee", server: withNATS, figures: vsFixed("knee"), systems: []system{
		{"fixed", 32_000, func(n int, url string) sample { return crowded(url, n, 24, knee) }},
		{"pool", 32_000, func(n int, url string) sample { return crowded(url, n, 0, knee) }},
	}},
	{name: "cliff", server: withNATS, figures: vsFixed("cliff"), systems: []system{
		{"fixed", 48_000, func(n int, url string) sample { return crowded(url, n, 40, cliff) }},
		{"pool", 48_000, func(n int, url string) sample { return crowded(url, n, 0, cliff) }},
	}},
	{name: "compute", figures: computeFigures, systems: computingSystems()},
	{name: "kafka", server: withKafka, figures: kafkaFigures, systems: []system{
		{"longshore", 1_000_000, func(n int, at string) sample { return kafkaLongshore(at, n, 0, noop) }},
		{"reader", 1_000_000, func(n int, at string) sample { return kafkaReader(at, n) }},
		{"franz", 1_000_000, func(n int, at string) sample { return kafkaFranz(at, n) }},
		{"watermill", 200_000, func(n int, at string) sample { return kafkaWatermill(at, n) }},
	}},
	{name: "kafka_key", server: withKafka, figures: kafkaKeyFigures, systems: []system{
		{"longshore", 1_000_000, func(n int, at string) sample { return kafkaConsumer(at, n, 0, consumer.OrderKey, noop) }},
		{"franz", 1_000_000, func(n int, at string) sample { return kafkaFranzByKey(at, n) }},
	}},
	hotKeys("kafka_key_10", tenKeys), hotKeys("kafka_key_1000", thousandKeys), hotKeys("kafka_key_skew", oneHotKey),
	handedOn("kafka_eos", withKafka), handedOn("kafka_eos_random", withRandomKafka),
	{name: "kafka_eos_5ms", server: withKafka, figures: kafkaEOSSlowFigures, systems: []system{
		{"longshore", 60_000, func(n int, at string) sample { return kafkaEOSLongshore(at, n, workers, fiveMilliseconds) }},
		{"franz", 4_000, func(n int, at string) sample { return kafkaEOSFranz(at, n, true, fiveMilliseconds) }},
	}},
	{name: "kafka_sleep", server: withKafka, figures: kafkaSleepFigures, systems: []system{
		{"longshore_256", 600_000, func(n int, at string) sample { return kafkaLongshore(at, n, 256, millisecond) }},
		local("bare_256", 600_000, func(n int) sample { return bare(n, 256, millisecond) }),
		{"longshore_64", 200_000, func(n int, at string) sample { return kafkaLongshore(at, n, 64, millisecond) }},
		local("bare_64", 200_000, func(n int) sample { return bare(n, 64, millisecond) }),
	}},
	{name: "kafka_crowd", server: withKafka, figures: crowdFigures, systems: crowdSystems()},
	{name: "kafka_letters", server: withKafka, figures: letterFigures("kafka_letters"), systems: []system{
		{"longshore", 200_000, func(n int, at string) sample { return kafkaLetters(at, n) }},
		{"async", 200_000, func(n int, at string) sample { return franzLetters(at, n) }},
	}},
	{name: "kafka_publish", server: withKafka, figures: kafkaPublishFigures, systems: []system{
		{"longshore_64", 100_000, func(n int, at string) sample { return kafkaPublish(at, n, 64) }},
		{"sync_64", 100_000, func(n int, at string) sample { return franzSync(at, n, 64) }},
		{"franz_64", 100_000, func(n int, at string) sample { return franzHandOn(at, n, 64) }},
		{"longshore_1000", 500_000, func(n int, at string) sample { return kafkaPublish(at, n, 1000) }},
		{"sync_1000", 500_000, func(n int, at string) sample { return franzSync(at, n, 1000) }},
		{"franz_1000", 500_000, func(n int, at string) sample { return franzHandOn(at, n, 1000) }},
	}},
	{name: "jetstream_letters", server: withNATS, figures: letterFigures("jetstream_letters"), systems: []system{
		{"longshore", 200_000, func(n int, url string) sample { return natsLetters(url, n) }},
		{"async", 200_000, func(n int, url string) sample { return natsAsync(url, n) }},
	}},
	{name: "jetstream_large", server: withStream(100_000), figures: jetstreamLargeFigures, systems: []system{
		{"longshore", 5_000, func(n int, url string) sample { return longshoreStream(url, n, 0, noop) }},
		{"consume", 5_000, func(n int, url string) sample { return natsConsume(url, n) }},
	}},
	{name: "jetstream_sleep", server: withNATS, figures: jetstreamSleepFigures, systems: []system{
		{"longshore", 200_000, func(n int, url string) sample { return longshoreStream(url, n, workers, millisecond) }},
		{"ants", 200_000, func(n int, url string) sample { return natsAnts(url, n, millisecond) }},
	}},
	{name: "codecs", server: withCodecs, figures: codecFigures, systems: codecSystems()},
	{name: "webhook", server: withReceiver, figures: webhookFigures, systems: []system{
		{"longshore", 100_000, func(n int, url string) sample { return webhookLongshore(url, n) }},
		{"bare", 100_000, func(n int, url string) sample { return webhookBare(url, n, false) }},
		{"described", 100_000, func(n int, url string) sample { return webhookBare(url, n, true) }},
	}},
	{name: "trickle", server: withTrickle, figures: trickleFigures, systems: []system{
		{"longshore", 100_000, func(n int, at string) sample { return trickleLongshore(n, at, workers) }},
		{"longshore_auto", 100_000, func(n int, at string) sample { return trickleLongshore(n, at, 0) }},
		{"ants", 100_000, func(n int, at string) sample { return trickleAnts(n, at) }},
	}},
	{name: "slow", server: withBacklog, figures: slowFigures, systems: []system{
		{"longshore", 128, func(n int, at string) sample { return kafkaLongshore(at, n, 1, fiftyMilliseconds) }},
		local("bare", 128, func(n int) sample { return bare(n, 1, fiftyMilliseconds) }),
	}},
}, growthGroups...)

func jetstreamLargeFigures(m map[string]sample) []figure {
	l, c := m["longshore"], m["consume"]
	return []figure{
		atLeast("jetstream_100k_rate_vs_consume", c.WallNS/l.WallNS, 1), show("jetstream_100k_per_second", 1e9/l.WallNS),
		show("jetstream_100k_per_second_consume", 1e9/c.WallNS), show("jetstream_100k_cpu_vs_consume", l.CPUNS/c.CPUNS),
	}
}

func jetstreamSleepFigures(m map[string]sample) []figure {
	l, a := m["longshore"], m["ants"]
	return []figure{
		atMost("jetstream_1ms_64_cpu_vs_ants", l.CPUNS/a.CPUNS, 1.1), show("jetstream_1ms_64_cpu_us", l.CPUNS/1e3),
		show("jetstream_1ms_64_cpu_us_ants", a.CPUNS/1e3), show("jetstream_1ms_64_rate_vs_ants", a.WallNS/l.WallNS),
	}
}

func handoffFigures(m map[string]sample) []figure {
	fs := []figure{
		atMost("pool_handoff_vs_channel", m["longshore"].WallNS/m["channel"].WallNS, 0.25),
		atMost("pool_handoff_allocs", round(m["longshore"].Allocs, 3), 0),
	}
	for _, s := range []string{"longshore", "longshore_single", "channel", "ants", "pond", "errgroup", "semaphore", "workerpool"} {
		fs = append(fs, show("handoff_ns_"+s, m[s].WallNS))
	}
	return fs
}

func sleepFigures(m map[string]sample) []figure {
	fs := []figure{
		atLeast("pool_1ms_throughput_vs_fixed", m["channel"].WallNS/m["longshore"].WallNS, 0.98),
		show("pool_1ms_throughput_vs_fixed_from_one_worker", m["channel"].WallNS/m["longshore_cold"].WallNS),
	}
	for _, s := range []string{"longshore", "channel", "ants", "pond", "errgroup", "semaphore", "workerpool"} {
		fs = append(fs, show("1ms_messages_per_second_"+s, 1e9/m[s].WallNS), show("1ms_cpu_us_"+s, m[s].CPUNS/1e3))
	}
	return fs
}

func engineFigures(m map[string]sample) (fs []figure) {
	for _, c := range []string{"64", "512"} {
		e, s := m["engine_"+c], m["serial_"+c]
		fs = append(fs,
			atMost("engine_cpu_ns_above_serial_chunk_"+c, e.CPUNS-s.CPUNS, 60),
			atMost("engine_allocs_above_serial_chunk_"+c, e.Allocs-s.Allocs, 0.05),
			show("engine_cpu_ns_chunk_"+c, e.CPUNS), show("serial_cpu_ns_chunk_"+c, s.CPUNS),
			show("engine_wall_ns_chunk_"+c, e.WallNS), show("serial_wall_ns_chunk_"+c, s.WallNS))
	}
	fs = append(fs, show("engine_cpu_ns_above_serial_chunk_64_without_a_heap", m["engine_no_heap"].CPUNS-m["serial_no_heap"].CPUNS))
	return fs
}

func batchFigures(m map[string]sample) []figure {
	b, o := m["batches"], m["one_by_one"]
	return []figure{
		atMost("batch_100_cpu_vs_one_by_one", b.CPUNS/o.CPUNS, 0.8),
		show("batch_100_cpu_ns", b.CPUNS), show("one_by_one_cpu_ns", o.CPUNS), show("batch_100_bytes",
			b.Bytes), show("one_by_one_bytes", o.Bytes),
		show("batch_100_allocs", b.Allocs),
	}
}

func engineSleepFigures(m map[string]sample) []figure {
	e, c := m["engine"], m["channel"]
	return []figure{
		atMost("engine_1ms_cpu_us_above_channel", (e.CPUNS-c.CPUNS)/1e3, 2),
		show("engine_1ms_cpu_us", e.CPUNS/1e3), show("channel_1ms_cpu_us", c.CPUNS/1e3),
		show("engine_1ms_throughput_vs_channel", c.WallNS/e.WallNS), show("engine_1ms_allocs", e.Allocs),
	}
}

func jetstreamFigures(m map[string]sample) []figure {
	l, n := m["longshore"], m["natsgo_consume"]
	return []figure{
		atLeast("jetstream_throughput_vs_natsgo_consume", n.WallNS/l.WallNS, 1),
		atMost("jetstream_allocs", l.Allocs, 6),
		show("jetstream_messages_per_second_longshore", 1e9/l.WallNS), show("jetstream_messages_per_second_natsgo_consume",
			1e9/n.WallNS),
		show("jetstream_cpu_us_longshore", l.CPUNS/1e3), show("jetstream_cpu_us_natsgo_consume", n.CPUNS/1e3),
		show("jetstream_allocs_natsgo_consume", n.Allocs),
	}
}

func kafkaFigures(m map[string]sample) []figure {
	l := m["longshore"]
	fs := []figure{
		atMost("kafka_cpu_vs_reader", l.CPUNS/m["reader"].CPUNS, 0.35),
		atMost("kafka_cpu_vs_franz", l.CPUNS/m["franz"].CPUNS, 1.2),
		atMost("kafka_cpu_vs_watermill", l.CPUNS/m["watermill"].CPUNS, 0.06),
		atMost("kafka_allocs", l.Allocs, 0.1),
	}
	for _, s := range []string{"longshore", "reader", "franz", "watermill"} {
		fs = append(fs, show("kafka_cpu_us_"+s, m[s].CPUNS/1e3), show("kafka_messages_per_second_"+s, 1e9/m[s].WallNS))
	}
	return fs
}

func kafkaKeyFigures(m map[string]sample) []figure {
	return []figure{
		atMost("kafka_key_cpu_us", m["longshore"].CPUNS/1e3, 1),
		show("kafka_key_cpu_us_franz", m["franz"].CPUNS/1e3), show("kafka_key_allocs", m["longshore"].Allocs),
		show("kafka_key_messages_per_second_longshore", 1e9/m["longshore"].WallNS), show("kafka_key_messages_per_second_franz",
			1e9/m["franz"].WallNS),
	}
}

// hotKeys is the group of few keys, in order, beside a hash of them that commits what is not handled.
func hotKeys(name string, key func(i int) int) group {
	return group{name: name, server: withKafkaKeys(key), systems: []system{
		{"longshore", 4_000_000, func(n int, at string) sample { return kafkaConsumer(at, n, 0, consumer.OrderKey, noop) }},
		{"franz", 4_000_000, func(n int, at string) sample { return kafkaFranzByKey(at, n) }},
	}, figures: func(m map[string]sample) []figure {
		l, f := m["longshore"], m["franz"]
		return []figure{
			atMost(name+"_cpu_vs_hash", l.CPUNS/f.CPUNS, 1), atLeast(name+"_rate_vs_hash", f.WallNS/l.WallNS, 0.5),
			show(name+"_cpu_us", l.CPUNS/1e3), show(name+"_cpu_us_hash", f.CPUNS/1e3),
			show(name+"_messages_per_second", 1e9/l.WallNS), show(name+"_messages_per_second_hash", 1e9/f.WallNS),
		}
	}}
}

func kafkaSleepFigures(m map[string]sample) (fs []figure) {
	for _, w := range []string{"64", "256"} {
		l, b := m["longshore_"+w], m["bare_"+w]
		fs = append(fs,
			atLeast("kafka_1ms_"+w+"_throughput_vs_bare", b.WallNS/l.WallNS, 0.95),
			atMost("kafka_1ms_"+w+"_cpu_us_above_bare", (l.CPUNS-b.CPUNS)/1e3, 2),
			show("kafka_1ms_"+w+"_messages_per_second", 1e9/l.WallNS), show("kafka_1ms_"+w+"_cpu_us", l.CPUNS/1e3), show("bare_1ms_"+w+
				"_cpu_us", b.CPUNS/1e3))
	}
	return fs
}

// handedOn measures messages that are handed on from topic to topic in transactions.
func handedOn(name string, server func(n int, do func(where string)) error) group {
	return group{name: name, server: server, figures: kafkaEOSFigures(name), systems: []system{
		{"longshore", 1_000_000, func(n int, at string) sample { return kafkaEOSLongshore(at, n, 0, noop) }},
		{"franz", 1_000_000, func(n int, at string) sample { return kafkaEOSFranz(at, n, false, noop) }},
		{"java", 1_000_000, func(n int, at string) sample { return kafkaEOSJava(at, n) }},
	}}
}
