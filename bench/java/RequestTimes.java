import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads brokers' request time per client: `RequestTimes HOST:PORT` of JMX. For each line on standard input it
 * prints a line `NAME=RATE` per client, in percent of one thread, and then an empty one.
 */
public class RequestTimes {
    private static final String CLIENTS = "kafka.server:type=Request,client-id=*";

    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://" + arguments[0] + "/jmxrmi";
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection broker = connector.getMBeanServerConnection();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            while (lines.readLine() != null) {
                for (ObjectName name : broker.queryNames(new ObjectName(CLIENTS), null)) {
                    Object rate = broker.getAttribute(name, "request-time");
                    System.out.println(name.getKeyProperty("client-id") + "=" + rate);
                }
                System.out.println();
                System.out.flush();
            }
        }
    }
}
