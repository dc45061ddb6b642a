import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Counts words exactly once: `StreamsWordCount BOOTSTRAP NAME INPUT OUTPUT DIRECTORY TRANSACTION-MS`. NAME is
 * the application's id, and its client-ids begin with it; TRANSACTION-MS is the time that a transaction may
 * take. A line on standard input ends it. It prints a line `CLIENT-ID METRIC VALUE` for each throttle
 * metric of its clients, and for the bytes that they sent or read, over the whole run.
 */
public class StreamsWordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("client.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", "2");
        settings.put("transaction.timeout.ms", arguments[5]);
        settings.put("metrics.sample.window.ms", "3600000");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word)
                .count()
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("failed " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        System.in.read();
        streams.metrics().forEach((name, metric) -> {
            if (name.name().matches(".*-throttle-time-.*|bytes-consumed-total|outgoing-byte-total")
                    && !name.tags().containsKey("topic") && !name.tags().containsKey("node-id")) {
                String client = name.tags().get("client-id");
                System.out.println(client + " " + name.name() + " " + metric.metricValue());
            }
        });
        streams.close(Duration.ofSeconds(30));
    }
}
