import java.io.File;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;

/** Kafka's own record iterator over one segment in memory: checks every batch, touches no payload. */
public final class RecordIterator {
    public static void main(String[] arguments) throws Exception {
        ByteBuffer bytes;
        try (FileChannel channel = FileChannel.open(new File(arguments[0]).toPath(), StandardOpenOption.READ)) {
            bytes = ByteBuffer.allocate((int) channel.size());
            while (bytes.hasRemaining() && channel.read(bytes) >= 0) { }
            bytes.flip();
        }
        int runs = Integer.parseInt(arguments[1]);
        for (int run = 0; run < runs; run++) {
            long start = System.nanoTime();
            long records = 0, checksum = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes.duplicate()).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    records++;
                    checksum += record.offset() + record.keySize() + record.valueSize();
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println("{\"peer\": \"kafka-java\", \"records\": " + records + ", \"seconds\": " + seconds
                + ", \"check\": " + checksum + "}");
        }
    }
}
