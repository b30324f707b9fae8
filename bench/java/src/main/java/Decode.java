import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * One segment through Kafka's own record classes, again and again: Decode SEGMENT arrays|grown|iterate memory|map|file SECONDS.
 *
 * <p>Warms up for SECONDS, prints what was decoded as a line of JSON, then for every line N on standard input decodes N times and prints the
 * nanoseconds of each as a JSON array. "memory" starts from bytes that are already in a heap buffer, "map" maps the file, "file" is FileRecords:
 * the last two start from a path, as Kolumn does. The outputs of "arrays" are allocated once, those of "grown" anew for each run: keys and values
 * begin with 1 MiB and are doubled when they are full, as by a program that does not know their sizes and keeps what it has decoded.
 *
 * <p>"Decode -" does so for many segments: for every line "SECONDS TIMES arrays|grown|iterate memory|map|file SEGMENT" it warms up, decodes, and prints
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

    private long[] offsets;
    private long[] timestamps;
    private int[] keyEnds;
    private int[] valueEnds;
    private byte[] keys = KEYS;
    private byte[] values = VALUES;

    private int records;
    private int keyBytes;
    private long valueBytes;

    private Decode(File file, String source) throws IOException {
        this.file = file;
        this.source = source;
        bytes = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
        int count = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(bytes.duplicate()).batches()) count += records(batch);
        allocate(count);
    }

    private void allocate(int count) {
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

    private void run(String mode) throws IOException {
        switch (source) {
            case "memory" -> decode(MemoryRecords.readableRecords(bytes.duplicate()), mode);
            case "map" -> decode(MemoryRecords.readableRecords(map()), mode);
            case "file" -> {
                try (FileRecords records = FileRecords.open(file, false)) {
                    decode(records, mode);
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

    private void decode(Records segment, String mode) {
        switch (mode) {
            case "arrays" -> fill(segment);
            case "grown" -> {
                forget();
                fill(segment);
            }
            case "iterate" -> iterate(segment);
            default -> throw new IllegalArgumentException(mode);
        }
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
                        keys = with(keys, keyEnd + size);
                        record.key().get(keys, keyEnd, size);
                        keyEnd += size;
                    }
                    size = record.valueSize();
                    if (size > 0) {
                        values = with(values, valueEnd + size);
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

    /** New outputs, as for a program that does not know how many bytes there are. */
    private void forget() {
        allocate(offsets.length);
        keys = new byte[1 << 20];
        values = new byte[1 << 20];
    }

    private static byte[] with(byte[] room, int size) {
        return size <= room.length ? room : Arrays.copyOf(room, Math.max(size, 2 * room.length));
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

    private String summary(String mode) {
        String counts = "\"records\": " + records + ", \"value_bytes\": " + valueBytes;
        if (mode.equals("iterate")) return "{" + counts + "}";
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

    private void warmUp(String mode, String seconds) throws IOException {
        long end = System.nanoTime() + (long) (Double.parseDouble(seconds) * 1e9);
        do run(mode);
        while (System.nanoTime() < end);
    }

    private String times(String mode, String times) throws IOException {
        long[] nanoseconds = new long[Integer.parseInt(times.trim())];
        for (int i = 0; i < nanoseconds.length; i++) {
            long start = System.nanoTime();
            run(mode);
            nanoseconds[i] = System.nanoTime() - start;
        }
        return Arrays.toString(nanoseconds);
    }

    private static String answer(String line) throws IOException {
        String[] asked = line.split(" ", 5);
        Decode decode = new Decode(new File(asked[4]), asked[3]);
        decode.warmUp(asked[2], asked[0]);
        return "{\"found\": " + decode.summary(asked[2]) + ", \"nanoseconds\": " + decode.times(asked[2], asked[1]) + "}";
    }

    public static void main(String[] arguments) throws IOException {
        boolean many = arguments[0].equals("-");
        String mode = many ? null : arguments[1];
        Decode decode = many ? null : new Decode(new File(arguments[0]), arguments[2]);
        if (!many) {
            decode.warmUp(mode, arguments[3]);
            System.out.println(decode.summary(mode));
        }
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine())
            System.out.println(many ? answer(line) : decode.times(mode, line));
    }
}
