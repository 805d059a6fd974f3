package org.apache.kafka.server.log.remote.storage;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;

/** RemoteLogManager's own rules, one question a line of stdin, for tests.interop.test_tier_rules. In its package: they
 * are open to its tests alone. Epochs are written epoch:offset,… */
public final class TierRules {
    private static NavigableMap<Integer, Long> epochs(String text) {
        NavigableMap<Integer, Long> found = new TreeMap<>();
        for (String entry : text.split(",")) {
            String[] parts = entry.split(":");
            found.put(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
        }
        return found;
    }

    private static String text(Map<Integer, Long> epochs) {
        return epochs.entrySet().stream().map(e -> e.getKey() + ":" + e.getValue()).collect(Collectors.joining(","));
    }

    /** within SEGMENT-EPOCHS START END LOG-EPOCHS LOG-END, or filtered EPOCHS */
    private static String answer(String[] asked) {
        if (asked[0].equals("filtered"))
            return text(RemoteLogManager.buildFilteredLeaderEpochMap(epochs(asked[1])));
        TopicIdPartition partition = new TopicIdPartition(Uuid.ONE_UUID, 0, "orders");
        RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
                new RemoteLogSegmentId(partition, Uuid.ONE_UUID), Long.parseLong(asked[2]), Long.parseLong(asked[3]),
                0, 0, 0, 1, epochs(asked[1]));
        return "" + RemoteLogManager.isRemoteSegmentWithinLeaderEpochs(
                segment, Long.parseLong(asked[5]), epochs(asked[4]));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (RuntimeException failed) {
                answer = "failed " + failed;
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
