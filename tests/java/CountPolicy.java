import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Admits two topics whose names begin with "policy.", for tests/integration/test_topic_counts.py. */
public class CountPolicy implements CreateTopicPolicy {
    private final Set<String> admitted = new HashSet<>();

    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public synchronized void validate(RequestMetadata request) {
        String name = request.topic();
        if (name.startsWith("policy.") && !admitted.contains(name)) {
            if (admitted.size() >= 2) {
                throw new PolicyViolationException("two topics exist");
            }
            admitted.add(name);
        }
    }

    @Override
    public void close() {
    }
}
