package kolumn;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.AllocationListener;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ForeignAllocation;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** Memory of a worker that this JVM maps, read-only. A worker uses it again when nothing here refers to the batch in it. */
final class Blocks {
  private static final String MEMFD = "/memfd:";

  private final long pid;
  private final BufferAllocator allocator = new RootAllocator(new Last(), Long.MAX_VALUE);
  private final Map<Integer, ByteBuffer> mapped = new HashMap<>();
  private final Queue<Integer> released = new ConcurrentLinkedQueue<>();
  private volatile boolean isGone;
  private boolean isClosed;

  Blocks(long pid) {
    this.pid = pid;
  }

  /** What batches of the worker are allocated by. */
  BufferAllocator allocator() {
    return allocator;
  }

  /**
   * Whether this JVM may open what the worker has opened, a block with the secret. The process that was started need not be the worker:
   * it may have started that, and then other files have these numbers.
   */
  boolean canOpen(int descriptor, byte[] secret) {
    try {
      // Not every file can be opened without a consequence.
      if (!Files.readSymbolicLink(path(descriptor)).toString().startsWith(MEMFD)) {
        return false;
      }
      ByteBuffer found = open(descriptor, secret.length);
      boolean isOurs = found.equals(ByteBuffer.wrap(secret));
      Unmap.now(found);
      return isOurs;
    } catch (IOException | RuntimeException e) {
      return false;
    }
  }

  private ByteBuffer open(int descriptor, long size) throws IOException {
    try (FileChannel file = FileChannel.open(path(descriptor), StandardOpenOption.READ)) {
      return file.map(FileChannel.MapMode.READ_ONLY, 0, size);
    }
  }

  /** Memory to copy to a device from: only what may be written can be page-locked. */
  ByteBuffer openWritable(int descriptor, long size) throws IOException {
    try (FileChannel file = FileChannel.open(path(descriptor), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      // A mapping that goes beyond the end of a file makes the file longer.
      if (size < 1 || size > Math.min(file.size(), Integer.MAX_VALUE)) {
        throw new IOException(size + " bytes of a block of " + file.size() + " cannot be mapped, at most " + Integer.MAX_VALUE);
      }
      return file.map(FileChannel.MapMode.READ_WRITE, 0, size);
    }
  }

  private Path path(int descriptor) {
    return Path.of("/proc/" + pid + "/fd/" + descriptor);
  }

  /** Numbers of the batches that nobody refers to any more. */
  List<Integer> released() {
    List<Integer> found = new ArrayList<>();
    for (Integer one = released.poll(); one != null; one = released.poll()) {
      found.add(one);
    }
    return found;
  }

  /** A batch from its description: what `SharedBlocks.describe` in Python writes. */
  ArrowRecordBatch described(ByteBuffer text) throws IOException {
    for (int dropped = text.getInt(); dropped > 0; dropped--) {
      Unmap.now(mapped.remove(text.getInt()));
    }
    for (int added = text.getInt(); added > 0; added--) {
      int block = text.getInt();
      mapped.put(block, open(text.getInt(), text.getLong()));
    }
    int batch = text.getInt();
    int rows = text.getInt();
    List<ArrowFieldNode> nodes = new ArrayList<>();
    for (int count = text.getInt(); count > 0; count--) {
      nodes.add(new ArrowFieldNode(text.getLong(), text.getLong()));
    }
    // One more than there are buffers, until all of them are there.
    AtomicInteger users = new AtomicInteger(1);
    List<ArrowBuf> buffers = new ArrayList<>();
    try {
      for (int count = text.getInt(); count > 0; count--) {
        int block = text.getInt();
        long offset = text.getLong();
        long length = text.getLong();
        buffers.add(block < 0 ? allocator.getEmpty() : buffer(users, batch, mapped.get(block), offset, length));
      }
      return new ArrowRecordBatch(rows, nodes, buffers);
    } finally {
      // The batch holds them now, and the vectors will.
      buffers.forEach(ArrowBuf::close);
      leave(users, batch);
    }
  }

  private ArrowBuf buffer(AtomicInteger users, int batch, ByteBuffer block, long offset, long length) {
    if (block == null || offset < 0 || length < 0 || offset + length > block.capacity()) {
      throw new IllegalStateException("a batch names memory that there is not: from " + offset + ", " + length + " bytes");
    }
    users.incrementAndGet();
    return allocator.wrapForeignAllocation(new Shared(users, batch, block, offset, length));
  }

  private void leave(AtomicInteger users, int batch) {
    if (users.decrementAndGet() == 0) {
      released.add(batch);
    }
  }

  /** Gives mappings back. Those that a consumer's buffers are in stay as long as the buffers, which hold them. */
  void close() {
    if (allocator.getAllocatedMemory() == 0) {
      mapped.values().forEach(Unmap::now);
    }
    mapped.clear();
    isGone = true;
    closeAllocator();
  }

  /** When the worker is gone and the last buffer is, too: a consumer may hold one for longer. */
  private synchronized void closeAllocator() {
    if (isGone && !isClosed && allocator.getAllocatedMemory() == 0) {
      isClosed = true;
      allocator.close();
    }
  }

  private final class Last implements AllocationListener {
    @Override
    public void onRelease(long size) {
      closeAllocator();
    }
  }

  /** A buffer in a block, without a copy. */
  private final class Shared extends ForeignAllocation {
    private final AtomicInteger users;
    private final int batch;

    /** Held, since the mapping goes with it. */
    @SuppressWarnings("unused")
    private final ByteBuffer block;

    Shared(AtomicInteger users, int batch, ByteBuffer block, long offset, long length) {
      super(length, MemoryUtil.getByteBufferAddress(block) + offset);
      this.users = users;
      this.batch = batch;
      this.block = block;
    }

    @Override
    protected void release0() {
      leave(users, batch);
    }
  }
}
