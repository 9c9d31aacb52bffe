import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own consume-process-produce loop, as its documentation has it: a transaction for each poll, with the offsets in it.
 * Arguments: brokers, topic, outputs, group, how many messages. It goes over all of them twice, with a group for each: the first
 * time the JVM compiles what it runs. Of the second one it prints what a message took, as JSON.
 */
public class EOSLoop {
    public static void main(String[] args) {
        int n = Integer.parseInt(args[4]);
        handOn(args[0], args[1], args[2], args[3] + "-warm", n);
        long[] took = handOn(args[0], args[1], args[2], args[3], n);
        System.out.printf("{\"wall_ns\": %f, \"cpu_ns\": %f}%n", (double) took[0] / n, (double) took[1] / n);
    }

    private static long[] handOn(String brokers, String topic, String outputs, String group, int n) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerProperties(brokers, group));
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producerProperties(brokers, group))) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            long wall = 0, cpu = 0;
            for (int committed = 0; committed < n; ) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                if (wall == 0) {
                    wall = System.nanoTime();
                    cpu = cpuTime();
                }
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> r : records) {
                    producer.send(new ProducerRecord<>(outputs, r.key(), r.value()));
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition p : records.partitions()) {
                    List<ConsumerRecord<byte[], byte[]>> of = records.records(p);
                    offsets.put(p, new OffsetAndMetadata(of.get(of.size() - 1).offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                committed += records.count();
            }
            return new long[] {System.nanoTime() - wall, cpuTime() - cpu};
        }
    }

    private static long cpuTime() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static Properties consumerProperties(String brokers, String group) {
        Properties p = new Properties();
        p.put("bootstrap.servers", brokers);
        p.put("group.id", group);
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        p.put("isolation.level", "read_committed");
        // A poll is a transaction. With the default of 500 messages nearly all of the time goes into their ends.
        p.put("max.poll.records", "50000");
        return p;
    }

    private static Properties producerProperties(String brokers, String group) {
        Properties p = new Properties();
        p.put("bootstrap.servers", brokers);
        p.put("transactional.id", group);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.put("batch.size", "900000"); // as large as the others make theirs
        p.put("compression.type", "snappy"); // as theirs
        return p;
    }
}
