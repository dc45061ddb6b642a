import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Starts Kroxylicious from a YAML file, as its own application does; that one is not on Maven Central. */
public final class KroxyliciousLauncher {
    public static void main(String[] arguments) throws Exception {
        ConfigParser parser = new ConfigParser();
        var configuration = parser.parseConfiguration(Files.readString(Path.of(arguments[0])));
        try (KafkaProxy proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
