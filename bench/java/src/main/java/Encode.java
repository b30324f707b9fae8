import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * The records of one segment built into batches with Kafka's own builder, again and again: Encode SEGMENT SECONDS.
 *
 * <p>The records lie in arrays before anything is measured, and each batch gets the records that it had. Protocol as of Decode: warms up,
 * prints what was built, then for every line N on standard input builds N times and prints the nanoseconds of each.
 */
public final class Encode {
    private static final int HEADER_AND_SLACK = 1 << 12;

    private final List<Long> bases = new ArrayList<>();
    private final List<Integer> counts = new ArrayList<>();
    private final List<byte[]> keys = new ArrayList<>();
    private final List<byte[]> values = new ArrayList<>();
    private final long[] offsets;
    private final long[] timestamps;
    private final ByteBuffer out;

    private Encode(File file) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
        List<Long> at = new ArrayList<>();
        List<Long> when = new ArrayList<>();
        for (RecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
            bases.add(batch.baseOffset());
            counts.add(batch.countOrNull());
            for (Record record : batch) {
                keys.add(copy(record.key()));
                values.add(copy(record.value()));
                at.add(record.offset());
                when.add(record.timestamp());
            }
        }
        offsets = at.stream().mapToLong(Long::longValue).toArray();
        timestamps = when.stream().mapToLong(Long::longValue).toArray();
        out = ByteBuffer.allocate(bytes.capacity() + HEADER_AND_SLACK);
    }

    private static byte[] copy(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] made = new byte[buffer.remaining()];
        buffer.duplicate().get(made);
        return made;
    }

    /** Builds all batches one after the other; returns how many bytes they have. */
    private int run() {
        out.clear();
        int row = 0;
        for (int b = 0; b < counts.size(); b++) {
            ByteBuffer room = out.slice();
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(room, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
                TimestampType.CREATE_TIME, bases.get(b), RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
                RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, RecordBatch.NO_PARTITION_LEADER_EPOCH,
                room.remaining());
            for (int i = 0; i < counts.get(b); i++, row++) {
                builder.appendWithOffset(offsets[row], timestamps[row], keys.get(row), values.get(row));
            }
            out.position(out.position() + builder.build().sizeInBytes());
        }
        return out.position();
    }

    private String summary() {
        int size = run();
        CRC32 crc = new CRC32();
        crc.update(out.array(), 0, size);
        return String.format("{\"records\": %d, \"bytes\": %d, \"crc\": %d}", offsets.length, size, crc.getValue());
    }

    public static void main(String[] arguments) throws IOException {
        Encode bench = new Encode(new File(arguments[0]));
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[1]) * 1e9);
        String found = bench.summary();
        while (System.nanoTime() < end) bench.run();
        System.out.println(found);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            StringBuilder answer = new StringBuilder("[");
            for (int i = 0; i < Integer.parseInt(line); i++) {
                long start = System.nanoTime();
                bench.run();
                answer.append(i == 0 ? "" : ", ").append(System.nanoTime() - start);
            }
            System.out.println(answer.append("]"));
        }
    }
}
