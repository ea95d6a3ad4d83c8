import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The program of Kafka's own Java client. The line protocol is in test/clients/doc.go. */
public final class Program {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<Integer, Stop> STOPS = new ConcurrentHashMap<>();
  private static String seeds;

  private static final class Stop {
    volatile boolean asked;
  }

  public static void main(String[] args) throws Exception {
    seeds = args[0];
    ObjectNode hello = JSON.createObjectNode().put("id", 0);
    hello.putObject("hello").put("client", "Java client").put("version", version());
    write(hello);
    List<Thread> threads = new ArrayList<>();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode command = JSON.readTree(line);
      if (command.get("op").asText().equals("stop")) {
        STOPS.get(command.get("of").asInt()).asked = true;
        continue;
      }
      Stop stop = new Stop();
      STOPS.put(command.get("id").asInt(), stop);
      Thread thread = new Thread(() -> run(command, stop));
      thread.start();
      threads.add(thread);
    }
    STOPS.values().forEach(s -> s.asked = true);
    for (Thread thread : threads) {
      thread.join();
    }
  }

  /** The version that the client's jar names. */
  private static String version() throws IOException {
    Properties p = new Properties();
    try (InputStream in = Program.class.getResourceAsStream("/kafka/kafka-version.properties")) {
      p.load(in);
    }
    return p.getProperty("version");
  }

  private static synchronized void write(ObjectNode event) {
    System.out.println(event);
  }

  private static void run(JsonNode command, Stop stop) {
    ObjectNode done = JSON.createObjectNode().put("id", command.get("id").asInt()).put("done", true);
    try {
      switch (command.get("op").asText()) {
        case "create_topic" -> createTopic(command);
        case "produce" -> done.put("acked", produce(command, stop));
        case "consume" -> consume(command, stop);
        case "group" -> group(command, stop);
        default -> throw new IllegalArgumentException("no such operation");
      }
    } catch (Exception e) {
      done.put("error", e.toString());
    }
    write(done);
  }

  private static String text(JsonNode command, String name) {
    return command.path(name).asText("");
  }

  private static Properties config(Object... pairs) {
    Properties p = new Properties();
    p.put("bootstrap.servers", seeds);
    for (int i = 0; i < pairs.length; i += 2) {
      p.put(pairs[i], pairs[i + 1]);
    }
    return p;
  }

  private static void createTopic(JsonNode command) throws Exception {
    try (Admin admin = Admin.create(config())) {
      NewTopic topic =
          new NewTopic(text(command, "topic"), command.get("ranges").asInt(), (short) command.get("replicas").asInt());
      admin.createTopics(List.of(topic)).all().get();
    }
  }

  private static int produce(JsonNode command, Stop stop) throws Exception {
    String codec = text(command, "codec");
    Properties p = config("acks", "all", "linger.ms", "5", "compression.type", codec.isEmpty() ? "none" : codec,
        "enable.idempotence", String.valueOf(command.path("idempotent").asBoolean(false)));
    AtomicInteger acked = new AtomicInteger();
    AtomicReference<Exception> failed = new AtomicReference<>();
    int first = command.path("first").asInt(0);
    int count = command.path("count").asInt(0);
    int pace = command.path("per_second").asInt(0);
    long started = System.nanoTime();
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
      for (int n = 0; !stop.asked && (count == 0 || n < count); n++) {
        while (pace > 0 && !stop.asked && System.nanoTime() - started < n * 1_000_000_000L / pace) {
          Thread.sleep(2);
        }
        byte[] value = String.format("%08d-%s", first + n, "vtop".repeat(16)).getBytes(StandardCharsets.UTF_8);
        producer.send(new ProducerRecord<>(text(command, "topic"), value), (metadata, e) -> {
          if (e == null) {
            acked.incrementAndGet();
          } else {
            failed.compareAndSet(null, e);
          }
        });
      }
      producer.flush();
    }
    if (failed.get() != null) {
      throw failed.get();
    }
    return acked.get();
  }

  private static KafkaConsumer<byte[], byte[]> consumer(Properties p) {
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", "false");
    return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  private static int poll(JsonNode command, KafkaConsumer<byte[], byte[]> consumer) {
    ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofMillis(100));
    if (got.isEmpty()) {
      return 0;
    }
    ObjectNode event = JSON.createObjectNode().put("id", command.get("id").asInt());
    ArrayNode records = event.putArray("records");
    for (ConsumerRecord<byte[], byte[]> r : got) {
      records.addArray().add(r.partition()).add(r.offset()).add(new String(r.value(), StandardCharsets.UTF_8));
    }
    write(event);
    return got.count();
  }

  private static void consume(JsonNode command, Stop stop) {
    int count = command.path("count").asInt(0);
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(config())) {
      consumer.assign(consumer.partitionsFor(text(command, "topic")).stream()
          .map(i -> new TopicPartition(i.topic(), i.partition())).toList());
      for (int n = 0; !stop.asked && (count == 0 || n < count); ) {
        n += poll(command, consumer);
      }
    }
  }

  private static void group(JsonNode command, Stop stop) {
    Properties p = config("group.id", text(command, "group"));
    if (text(command, "protocol").equals("consumer")) {
      p.put("group.protocol", "consumer");
    } else {
      p.put("session.timeout.ms", "6000");
      p.put("heartbeat.interval.ms", "1000");
    }
    if (!text(command, "instance").isEmpty()) {
      p.put("group.instance.id", text(command, "instance"));
    }
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(p)) {
      consumer.subscribe(List.of(text(command, "topic")));
      while (!stop.asked) {
        if (poll(command, consumer) == 0) {
          continue;
        }
        try {
          consumer.commitSync();
        } catch (RebalanceInProgressException | CommitFailedException e) {
          // The rebalance under way gave the ranges to another member, which reads them again: nothing to mend.
          write(JSON.createObjectNode().put("id", command.get("id").asInt()).put("warn", "commit: " + e));
        }
      }
    }
  }
}
