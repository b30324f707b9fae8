import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Iterator;
import java.util.zip.CRC32;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Reads segments from standard input (i32 size, bytes) with Kafka's own record classes: Reader SCRATCH_FILE crc|nocrc.
 *
 * <p>Prints one line for each: its entries, "POSITION SIZE rows COUNT CRC32|" or "POSITION SIZE error TEXT|", and then how it ended.
 */
public final class Reader {
    private static final BufferSupplier BUFFERS = BufferSupplier.create();

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        File scratch = new File(arguments[0]);
        while (true) {
            byte[] segment;
            try {
                segment = new byte[in.readInt()];
            } catch (EOFException end) {
                break;
            }
            in.readFully(segment);
            Files.write(scratch.toPath(), segment);
            try (FileRecords records = FileRecords.open(scratch, false)) {
                out.println(read(records, arguments[1].equals("crc")));
            }
        }
        out.flush();
    }

    private static String read(FileRecords records, boolean crc) {
        StringBuilder line = new StringBuilder();
        Iterator<FileChannelRecordBatch> batches = records.batches().iterator();
        while (true) {
            FileChannelRecordBatch batch;
            try {
                if (!batches.hasNext()) return line.append("end").toString();
                batch = batches.next();
            } catch (RuntimeException error) {
                return line.append("error ").append(text(error)).toString();
            }
            line.append(batch.position()).append(' ').append(batch.sizeInBytes());
            try {
                if (crc) batch.ensureValid();
                String found = rows(batch);
                line.append(" rows ").append(found);
            } catch (IOException | RuntimeException | Error error) {
                // Errors are thrown by snappy, and if there is no memory for a hostile count.
                line.append(" error ").append(text(error));
            }
            line.append('|');
        }
    }

    private static String text(Throwable error) {
        return error.toString().replaceAll("[|\\s]+", " ");
    }

    private static String rows(FileChannelRecordBatch batch) throws IOException {
        CRC32 digest = new CRC32();
        int count = 0;
        // With a count of 0, DefaultRecordBatch.iterator() does not read the bytes after the header; streamingIterator() does.
        Integer known = batch.countOrNull();
        if (known == null || known != 0) {
            try (CloseableIterator<Record> records = batch.streamingIterator(BUFFERS)) {
                for (; records.hasNext(); count++) add(digest, batch, records.next());
            }
        }
        return count + " " + digest.getValue();
    }

    private static void add(CRC32 digest, FileChannelRecordBatch batch, Record record) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        out.writeInt(batch.timestampType().id);
        sized(out, record.key());
        sized(out, record.value());
        out.writeInt(record.headers().length);
        for (Header header : record.headers()) {
            sized(out, ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
            sized(out, header.value() == null ? null : ByteBuffer.wrap(header.value()));
        }
        out.writeLong(batch.producerId());
        out.writeShort(batch.producerEpoch());
        out.writeInt(record.sequence());
        out.writeInt(batch.partitionLeaderEpoch());
        out.writeBoolean(batch.isTransactional());
        out.writeBoolean(batch.isControlBatch());
        out.writeByte(batch.magic());
        digest.update(bytes.toByteArray());
    }

    private static void sized(DataOutputStream out, ByteBuffer field) throws IOException {
        if (field == null) {
            out.writeInt(-1);
            return;
        }
        byte[] bytes = new byte[field.remaining()];
        field.duplicate().get(bytes);
        out.writeInt(bytes.length);
        out.write(bytes);
    }
}
