package org.apache.kafka.storage.internals.log;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;

/** Kafka's own LogValidator and ProducerStateManager, one question a line of stdin, for tests.interop.test_log_rules. In
 * their package: what a duplicate is, they tell nobody else. */
public final class LogRules {
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    /** Where a manager finds no snapshots, and writes none: a folder that is not there. */
    private static final File NO_SNAPSHOTS = new File("no-producer-snapshots");

    /** A clock that stands where it was told. */
    private static final class Clock implements Time {
        private long now;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1000000;
        }

        @Override
        public void sleep(long milliseconds) { }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    private static final class NoMetrics implements LogValidator.MetricsRecorder {
        @Override
        public void recordInvalidMagic() { }

        @Override
        public void recordInvalidOffset() { }

        @Override
        public void recordInvalidSequence() { }

        @Override
        public void recordInvalidChecksums() { }

        @Override
        public void recordNoKeyCompactedTopic() { }
    }

    private final Clock clock = new Clock();
    private ProducerStateManager state;

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    private static int code(Throwable error) {
        return Errors.forException(error).code();
    }

    /** validate HEX compacted appendTime beforeMax afterMax now firstOffset leaderEpoch origin */
    private String validate(String[] asked) {
        try {
            clock.now = Long.parseLong(asked[6]);
            MemoryRecords given = records(asked[1]);
            CompressionType codec = given.batches().iterator().next().compressionType();
            TimestampType type = asked[3].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
            PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(asked[7]));
            LogValidator validator = new LogValidator(given, PARTITION, clock, codec, Compression.of(codec).build(),
                    asked[2].equals("1"), RecordBatch.MAGIC_VALUE_V2, type, Long.parseLong(asked[4]),
                    Long.parseLong(asked[5]), Integer.parseInt(asked[8]), AppendOrigin.valueOf(asked[9]));
            LogValidator.ValidationResult result =
                    validator.validateMessagesAndAssignOffsets(offset, new NoMetrics(), BufferSupplier.NO_CACHING);
            ByteBuffer bytes = result.validatedRecords().buffer().duplicate();
            byte[] stored = new byte[bytes.remaining()];
            bytes.get(stored);
            return "taken " + result.maxTimestampMs() + " " + offset.value + " " + HexFormat.of().formatHex(stored);
        } catch (RecordValidationException refused) {
            String records = refused.recordErrors().stream().map(e -> "" + e.batchIndex).collect(Collectors.joining(","));
            return "refused " + code(refused.invalidException()) + " " + records;
        } catch (RuntimeException | Error refused) { // snappy's is an Error
            return "refused " + code(refused) + " ";
        }
    }

    /** append origin transactionVersion HEX: UnifiedLog#analyzeAndValidateProducerState and what follows it. */
    private String append(String[] asked) {
        AppendOrigin origin = AppendOrigin.valueOf(asked[1]);
        short version = Short.parseShort(asked[2]);
        Map<Long, ProducerAppendInfo> updated = new HashMap<>();
        List<CompletedTxn> completed = new ArrayList<>();
        long end = 0;
        try {
            for (MutableRecordBatch batch : records(asked[3]).batches()) {
                end = batch.lastOffset() + 1;
                if (!batch.hasProducerId()) continue;
                Optional<ProducerStateEntry> known = state.lastEntry(batch.producerId());
                if (origin == AppendOrigin.CLIENT) {
                    Optional<BatchMetadata> found = known.flatMap(entry -> entry.findDuplicateBatch(batch));
                    if (found.isPresent())
                        return "duplicate " + found.get().firstOffset() + " " + found.get().lastOffset();
                }
                boolean goesOn = known.isPresent() && known.get().currentTxnFirstOffset().isPresent()
                        && known.get().producerEpoch() == batch.producerEpoch();
                if (origin != AppendOrigin.REPLICATION && batch.isTransactional() && !goesOn && known.isPresent()
                        && batch.producerEpoch() < known.get().producerEpoch())
                    throw new InvalidProducerEpochException("fenced");
                UnifiedLog.updateProducers(state, batch, updated, Optional.empty(), origin, version)
                        .ifPresent(completed::add);
            }
        } catch (RuntimeException refused) {
            return "refused " + code(refused) + told();
        }
        updated.values().forEach(state::update);
        StringBuilder aborted = new StringBuilder();
        for (CompletedTxn ended : completed) {
            long stable = state.lastStableOffset(ended);
            if (ended.isAborted())
                aborted.append(String.format(" %d:%d:%d:%d", ended.producerId(), ended.firstOffset(),
                        ended.lastOffset(), stable));
            state.completeTxn(ended);
        }
        state.updateMapEndOffset(end);
        return "taken" + aborted + told();
    }

    /** The last stable offsets and all producers. */
    private String told() {
        StringBuilder out = new StringBuilder(" | ");
        out.append(state.firstUnstableOffset().map(offset -> offset.messageOffset).orElse(-1L));
        out.append(' ').append(state.firstUndecidedOffset().orElse(-1L));
        for (ProducerStateEntry entry : new TreeMap<>(state.activeProducers()).values())
            out.append(String.format(" %d:%d:%d:%d:%d:%d:%d:%d:%d", entry.producerId(), entry.producerEpoch(),
                    entry.lastSeq(), entry.lastDataOffset(), entry.lastOffsetDelta(), entry.lastTimestamp(),
                    entry.coordinatorEpoch(), entry.currentTxnFirstOffset().orElse(-1L), entry.batchMetadata().size()));
        return out.toString();
    }

    private String answer(String[] asked) throws Exception {
        switch (asked[0]) {
            case "validate":
                return validate(asked);
            case "append":
                return append(asked);
            case "watermark":
                state.onHighWatermarkUpdated(Long.parseLong(asked[1]));
                return "taken" + told();
            default:
                ProducerStateManagerConfig config = new ProducerStateManagerConfig(86400000, false);
                state = new ProducerStateManager(PARTITION, NO_SNAPSHOTS, 900000, config, clock);
                return "new";
        }
    }

    public static void main(String[] arguments) throws Exception {
        LogRules rules = new LogRules();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(rules.answer(line.split(" ")));
            System.out.flush();
        }
    }
}
