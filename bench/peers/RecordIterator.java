import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

/** Kafka's own record iterator over one segment in memory, once a line of stdin: checks every batch, touches no payload. */
public final class RecordIterator {
    public static void main(String[] arguments) throws Exception {
        ByteBuffer bytes;
        try (FileChannel channel = FileChannel.open(new File(arguments[0]).toPath(), StandardOpenOption.READ)) {
            bytes = ByteBuffer.allocate((int) channel.size());
            while (bytes.hasRemaining() && channel.read(bytes) >= 0) { }
            bytes.flip();
        }
        BufferedReader rounds = new BufferedReader(new InputStreamReader(System.in));
        while (rounds.readLine() != null) {
            long start = System.nanoTime();
            long records = 0, check = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes.duplicate()).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    records++;
                    check += record.offset() + Math.max(record.keySize(), 0) + Math.max(record.valueSize(), 0);
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println("{\"records\": " + records + ", \"seconds\": " + seconds + ", \"check\": " + check + "}");
        }
    }
}
