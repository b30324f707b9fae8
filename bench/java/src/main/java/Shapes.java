import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/**
 * Writes one segment with Kafka's own builder: Shapes FILE FORMAT CODEC VALUE BATCH MEGABYTES [VALUES].
 *
 * <p>Keys have 11 bytes, values VALUE bytes of random words, or they are those of the file VALUES: a length of four bytes before each. A batch is full when its records have BATCH bytes before compression, so BATCH 1
 * is one record. In formats 0 and 1 without a codec there are no batches.
 */
public final class Shapes {
    private static final String LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 {}\":,";
    private static final int OF_RECORD = 20;

    private final Random random = new Random(1);
    private final byte[][] words = new byte[4096][];
    private final List<byte[]> values = new ArrayList<>();

    private Shapes() {
        for (int i = 0; i < words.length; i++) {
            words[i] = new byte[3 + random.nextInt(8)];
            for (int j = 0; j < words[i].length; j++) words[i][j] = (byte) LETTERS.charAt(random.nextInt(LETTERS.length()));
        }
    }

    private byte[] value(int size) {
        byte[] value = new byte[size];
        for (int at = 0; at < size; ) {
            byte[] word = words[random.nextInt(words.length)];
            int length = Math.min(word.length, size - at);
            System.arraycopy(word, 0, value, at, length);
            at += length;
        }
        return value;
    }

    private void load(String file) throws IOException {
        try (DataInputStream in = new DataInputStream(new FileInputStream(file))) {
            while (in.available() > 0) values.add(in.readNBytes(in.readInt()));
        }
    }

    private void write(OutputStream out, byte magic, Compression codec, int value, int batch, long bytes) throws IOException {
        long offset = 0;
        long time = 1_700_000_000_000L;
        for (long done = 0; done < bytes; ) {
            ByteBuffer room = ByteBuffer.allocate(3 * batch + 2 * value + 4096);
            MemoryRecordsBuilder builder = MemoryRecords.builder(room, magic, codec, TimestampType.CREATE_TIME, offset);
            for (int raw = 0; raw < batch; ) {
                time += random.nextInt(3);
                byte[] key = String.format("key%08d", offset).getBytes(StandardCharsets.US_ASCII);
                byte[] next = values.isEmpty() ? value(value) : values.get((int) (offset % values.size()));
                builder.append(time, key, next);
                raw += next.length + OF_RECORD;
                offset++;
            }
            ByteBuffer full = builder.build().buffer();
            out.write(full.array(), full.arrayOffset() + full.position(), full.remaining());
            done += full.remaining();
        }
    }

    public static void main(String[] arguments) throws IOException {
        Compression codec = Compression.of(arguments[2]).build();
        try (OutputStream out = new BufferedOutputStream(new FileOutputStream(arguments[0]), 1 << 20)) {
            int value = Integer.parseInt(arguments[3]);
            int batch = Integer.parseInt(arguments[4]);
            Shapes shapes = new Shapes();
            if (arguments.length > 6) shapes.load(arguments[6]);
            shapes.write(out, Byte.parseByte(arguments[1]), codec, value, batch, Long.parseLong(arguments[5]) << 20);
        }
    }
}
