import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * One segment through Kafka's own record classes, again and again: Decode SEGMENT arrays|iterate memory|map|file SECONDS.
 *
 * <p>Warms up for SECONDS, prints what was decoded as a line of JSON, then for every line N on standard input decodes N times and prints the
 * nanoseconds of each as a JSON array. "memory" starts from bytes that are already in a heap buffer, "map" maps the file, "file" is FileRecords:
 * the last two start from a path, as Kolumn does. All outputs are allocated once.
 *
 * <p>"Decode -" does so for many segments: for every line "SECONDS TIMES arrays|iterate memory|map|file SEGMENT" it warms up, decodes, and prints
 * what was decoded and the nanoseconds as one line of JSON.
 */
public final class Decode {
    private static final int ARENA = 128 << 20;
    private static final byte[] KEYS = new byte[ARENA];
    private static final byte[] VALUES = new byte[ARENA];

    private final File file;
    private final String source;
    private final BufferSupplier buffers = BufferSupplier.create();
    private final ByteBuffer bytes;

    private final long[] offsets;
    private final long[] timestamps;
    private final int[] keyEnds;
    private final int[] valueEnds;
    private final byte[] keys = KEYS;
    private final byte[] values = VALUES;

    private int records;
    private int keyBytes;
    private long valueBytes;

    private Decode(File file, String source) throws IOException {
        this.file = file;
        this.source = source;
        bytes = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
        int count = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(bytes.duplicate()).batches()) count += records(batch);
        offsets = new long[count];
        timestamps = new long[count];
        keyEnds = new int[count];
        valueEnds = new int[count];
    }

    /** Number of records; formats 0 and 1 have none in their headers. */
    private static int records(RecordBatch batch) {
        if (batch.countOrNull() != null) return batch.countOrNull();
        int count = 0;
        for (Record record : batch) count++;
        return count;
    }

    private void run(boolean arrays) throws IOException {
        switch (source) {
            case "memory" -> decode(MemoryRecords.readableRecords(bytes.duplicate()), arrays);
            case "map" -> decode(MemoryRecords.readableRecords(map()), arrays);
            case "file" -> {
                try (FileRecords records = FileRecords.open(file, false)) {
                    decode(records, arrays);
                }
            }
            default -> throw new IllegalArgumentException(source);
        }
    }

    private ByteBuffer map() throws IOException {
        try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
            return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
        }
    }

    private void decode(Records segment, boolean arrays) {
        if (arrays) fill(segment);
        else iterate(segment);
    }

    private void fill(Records segment) {
        int row = 0;
        int keyEnd = 0;
        int valueEnd = 0;
        for (RecordBatch batch : segment.batches()) {
            batch.ensureValid();
            try (CloseableIterator<Record> iterator = batch.streamingIterator(buffers)) {
                while (iterator.hasNext()) {
                    Record record = iterator.next();
                    offsets[row] = record.offset();
                    timestamps[row] = record.timestamp();
                    int size = record.keySize();
                    if (size > 0) {
                        record.key().get(keys, keyEnd, size);
                        keyEnd += size;
                    }
                    size = record.valueSize();
                    if (size > 0) {
                        record.value().get(values, valueEnd, size);
                        valueEnd += size;
                    }
                    keyEnds[row] = keyEnd;
                    valueEnds[row] = valueEnd;
                    row++;
                }
            }
        }
        records = row;
        keyBytes = keyEnd;
        valueBytes = valueEnd;
    }

    private void iterate(Records segment) {
        int row = 0;
        long touched = 0;
        for (RecordBatch batch : segment.batches()) {
            batch.ensureValid();
            try (CloseableIterator<Record> iterator = batch.streamingIterator(buffers)) {
                while (iterator.hasNext()) {
                    touched += iterator.next().valueSize();
                    row++;
                }
            }
        }
        records = row;
        valueBytes = touched;
    }

    private String summary(boolean arrays) {
        String counts = "\"records\": " + records + ", \"value_bytes\": " + valueBytes;
        if (!arrays) return "{" + counts + "}";
        CRC32 crc = new CRC32();
        crc.update(keys, 0, keyBytes);
        crc.update(values, 0, (int) valueBytes);
        long offsetSum = 0;
        long timestampSum = 0;
        for (int row = 0; row < records; row++) {
            offsetSum += offsets[row];
            timestampSum += timestamps[row];
        }
        return "{" + counts + ", \"key_bytes\": " + keyBytes + ", \"crc\": " + crc.getValue() + ", \"offset_sum\": " + offsetSum + ", \"timestamp_sum\": "
            + timestampSum + ", \"java\": \"" + System.getProperty("java.vm.version") + "\"}";
    }

    private void warmUp(boolean arrays, String seconds) throws IOException {
        long end = System.nanoTime() + (long) (Double.parseDouble(seconds) * 1e9);
        do run(arrays);
        while (System.nanoTime() < end);
    }

    private String times(boolean arrays, String times) throws IOException {
        long[] nanoseconds = new long[Integer.parseInt(times.trim())];
        for (int i = 0; i < nanoseconds.length; i++) {
            long start = System.nanoTime();
            run(arrays);
            nanoseconds[i] = System.nanoTime() - start;
        }
        return java.util.Arrays.toString(nanoseconds);
    }

    private static String answer(String line) throws IOException {
        String[] asked = line.split(" ", 5);
        Decode decode = new Decode(new File(asked[4]), asked[3]);
        boolean arrays = asked[2].equals("arrays");
        decode.warmUp(arrays, asked[0]);
        return "{\"found\": " + decode.summary(arrays) + ", \"nanoseconds\": " + decode.times(arrays, asked[1]) + "}";
    }

    public static void main(String[] arguments) throws IOException {
        boolean many = arguments[0].equals("-");
        boolean arrays = !many && arguments[1].equals("arrays");
        Decode decode = many ? null : new Decode(new File(arguments[0]), arguments[2]);
        if (!many) {
            decode.warmUp(arrays, arguments[3]);
            System.out.println(decode.summary(arrays));
        }
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
            System.out.println(many ? answer(line) : decode.times(arrays, line));
    }
}
