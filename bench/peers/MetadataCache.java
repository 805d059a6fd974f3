package org.apache.kafka.server.log.remote.metadata.storage;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;

/** Kafka's own cache of segments over files of bench.metadata_table, one round a line of stdin. Caches lie in an array by
 * partition: what Kafka's manager looks up in maps before is not counted against it. */
public final class MetadataCache {
    private static final int PARTITIONS_EACH_TOPIC = 100;

    private static ByteBuffer read(String path) throws Exception {
        try (FileChannel channel = FileChannel.open(Path.of(path), StandardOpenOption.READ)) {
            ByteBuffer bytes = ByteBuffer.allocate((int) channel.size());
            while (bytes.hasRemaining() && channel.read(bytes) >= 0) { }
            return bytes.flip();
        }
    }

    private static int indexOf(RemoteLogMetadata event) {
        return (int) event.topicIdPartition().topicId().getLeastSignificantBits() * PARTITIONS_EACH_TOPIC
            + event.topicIdPartition().partition();
    }

    private static long used() throws Exception {
        long least = Long.MAX_VALUE;
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
            least = Math.min(least, Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory());
        }
        return least;
    }

    public static void main(String[] arguments) throws Exception {
        ByteBuffer events = read(arguments[0]);
        ByteBuffer asked = read(arguments[1]).order(ByteOrder.LITTLE_ENDIAN);
        int partitions = Integer.parseInt(arguments[2]), first = Integer.parseInt(arguments[3]);
        int questions = asked.remaining() / 16;
        int[] partition = new int[questions], epoch = new int[questions];
        long[] offset = new long[questions];
        for (int i = 0; i < questions; i++) {
            partition[i] = asked.getInt();
            epoch[i] = asked.getInt();
            offset[i] = asked.getLong();
        }
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        BufferedReader rounds = new BufferedReader(new InputStreamReader(System.in));
        while (rounds.readLine() != null) {
            long start = System.nanoTime(), parsed = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(events.duplicate()).batches()) {
                batch.ensureValid();
                for (Record record : batch) parsed += serde.deserialize(bytesOf(record)).brokerId() >= 0 ? 1 : 0;
            }
            double parse = seconds(start);
            long before = used();
            RemoteLogMetadataCache[] caches = new RemoteLogMetadataCache[partitions];
            for (int i = 0; i < partitions; i++) {
                caches[i] = new RemoteLogMetadataCache();
                caches[i].markInitialized();
            }
            start = System.nanoTime();
            long applied = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(events.duplicate()).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    RemoteLogMetadata event = serde.deserialize(bytesOf(record));
                    RemoteLogMetadataCache cache = caches[indexOf(event)];
                    if (event instanceof RemoteLogSegmentMetadata) {
                        cache.addCopyInProgressSegment((RemoteLogSegmentMetadata) event);
                    } else {
                        cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) event);
                    }
                    applied++;
                }
            }
            double apply = seconds(start);
            long held = used() - before;
            start = System.nanoTime();
            long found = 0, check = 0, checkFirst = 0;
            for (int i = 0; i < questions; i++) {
                if (i == first) checkFirst = check;
                Optional<RemoteLogSegmentMetadata> segment =
                    caches[partition[i]].remoteLogSegmentMetadata(epoch[i], offset[i]);
                if (segment.isEmpty()) continue;
                found++;
                check += segment.get().remoteLogSegmentId().id().getLeastSignificantBits() + segment.get().endOffset();
            }
            if (questions <= first) checkFirst = check;
            double find = seconds(start);
            start = System.nanoTime();
            long highest = 0;
            for (int i = 0; i < questions; i++) highest += caches[partition[i]].highestOffsetForEpoch(epoch[i]).orElse(-1L);
            double highestSeconds = seconds(start);
            start = System.nanoTime();
            long listed = 0, listCheck = 0;
            for (RemoteLogMetadataCache cache : caches) {
                List<RemoteLogSegmentMetadata> all = new ArrayList<>();
                for (Iterator<RemoteLogSegmentMetadata> i = cache.listAllRemoteLogSegments(); i.hasNext();) all.add(i.next());
                for (RemoteLogSegmentMetadata each : all) listCheck += each.startOffset() + each.segmentSizeInBytes();
                listed += all.size();
            }
            double list = seconds(start);
            System.out.println("{\"seconds\": " + apply + ", \"events\": " + applied + ", \"parse\": " + parse + ", \"parsed\": " + parsed
                + ", \"find\": " + find + ", \"found\": " + found + ", \"check\": " + check + ", \"check_first\": " + checkFirst
                + ", \"highest\": " + highestSeconds + ", \"highest_check\": " + highest + ", \"list\": " + list + ", \"listed\": " + listed
                + ", \"list_check\": " + listCheck + ", \"held\": " + held + "}");
        }
    }

    private static byte[] bytesOf(Record record) {
        ByteBuffer value = record.value();
        byte[] bytes = new byte[value.remaining()];
        value.get(bytes);
        return bytes;
    }

    private static double seconds(long start) { return (System.nanoTime() - start) / 1e9; }
}
