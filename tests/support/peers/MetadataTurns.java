package org.apache.kafka.server.log.remote.metadata.storage;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;

/** Kafka's own RemoteLogMetadataCache of one partition, one history a line: its words are records in hexadecimal digits,
 * and questions "?EPOCHS,OFFSETS,NEXT" about each epoch below EPOCHS and each offset below OFFSETS, with NEXT about
 * transaction indexes too (Kafka asks for ever where an epoch ends behind its segment). A word of the answer for each
 * word: whether a record was taken, or the answers. Segments go by the last bytes of their ids. */
public final class MetadataTurns {
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
            cache.markInitialized();
            StringBuilder told = new StringBuilder();
            for (String word : line.split(" ")) {
                if (told.length() > 0) told.append(' ');
                if (word.startsWith("?")) answer(cache, word.substring(1).split(","), told);
                else told.append(take(cache, SERDE.deserialize(HexFormat.of().parseHex(word))));
            }
            out.println(told);
            out.flush();
        }
    }

    private static String take(RemoteLogMetadataCache cache, RemoteLogMetadata event) {
        try {
            if (event instanceof RemoteLogSegmentMetadata) {
                cache.addCopyInProgressSegment((RemoteLogSegmentMetadata) event);
            } else {
                cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) event);
            }
            return "taken";
        } catch (IllegalArgumentException | RemoteResourceNotFoundException error) {
            return error.getClass().getSimpleName();
        }
    }

    /** all segments as id.state.event time.custom size; then of each epoch "highest/list/found:next;found:next;". */
    private static void answer(RemoteLogMetadataCache cache, String[] asked, StringBuilder told) throws Exception {
        int epochs = Integer.parseInt(asked[0]);
        long offsets = Long.parseLong(asked[1]);
        boolean next = Boolean.parseBoolean(asked[2]);
        List<String> all = new ArrayList<>();
        for (Iterator<RemoteLogSegmentMetadata> i = cache.listAllRemoteLogSegments(); i.hasNext();) {
            RemoteLogSegmentMetadata each = i.next();
            int custom = each.customMetadata().map(bytes -> bytes.value().length).orElse(-1);
            all.add(id(each) + "." + each.state().id() + "." + each.eventTimestampMs() + "." + custom);
        }
        told.append(String.join(",", all));
        for (int epoch = 0; epoch < epochs; epoch++) {
            told.append('|').append(cache.highestOffsetForEpoch(epoch).map(String::valueOf).orElse("")).append('/');
            List<String> listed = new ArrayList<>();
            for (Iterator<RemoteLogSegmentMetadata> i = cache.listRemoteLogSegments(epoch); i.hasNext();) listed.add(id(i.next()));
            told.append(String.join(",", listed)).append('/');
            for (long offset = 0; offset < offsets; offset++) {
                told.append(id(cache.remoteLogSegmentMetadata(epoch, offset))).append(':');
                if (next) told.append(id(cache.nextSegmentWithTxnIndex(epoch, offset)));
                told.append(';');
            }
        }
    }

    private static String id(RemoteLogSegmentMetadata segment) {
        return String.valueOf(segment.remoteLogSegmentId().id().getLeastSignificantBits());
    }

    private static String id(Optional<RemoteLogSegmentMetadata> segment) {
        return segment.map(MetadataTurns::id).orElse("");
    }
}
