package kolumn;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * What a worker and this JVM know from one decoding on a device to the next: memory of the worker that is mapped here, kernels by the
 * worker's numbers, and room for copies from and to memory that is not.
 */
final class DeviceState implements AutoCloseable {
  private static final int ROOM = 1 << 22;
  private static final int PAGE = 1 << 12;
  private static final int UNIT = 64;

  private final Blocks blocks;
  private final Map<Integer, HostBlock> mapped = new HashMap<>();
  private final Map<Integer, String> unmapped = new HashMap<>();
  private final Map<Integer, Kernels.Kernel> kernels = new HashMap<>();
  private HostBlock room;
  private int used;
  private boolean isCopying;

  DeviceState(Blocks blocks) {
    this.blocks = blocks;
  }

  /** Does what a command says of the worker's memory, of a kernel or of nvCOMP; whether it is such a command. */
  boolean note(char command, Commands commands) throws IOException {
    if ("MDKN".indexOf(command) < 0) {
      return false;
    }
    ByteBuffer text = commands.rest();
    if (command == 'N') {
      // Without it the worker hears that there is none when it asks for temporary memory.
      Driver.useCodecs(StandardCharsets.UTF_8.decode(text).toString());
      return true;
    }
    int number = text.getInt();
    switch (command) {
      case 'M' -> map(number, text.getInt(), text.getLong());
      case 'D' -> drop(number);
      default -> {
        byte[] name = new byte[text.getInt()];
        text.get(name);
        byte[] image = new byte[text.remaining()];
        text.get(image);
        kernels.put(number, new Kernels.Kernel(new String(name, StandardCharsets.UTF_8), image));
      }
    }
    return true;
  }

  /** An error is that of the copy which needs the block: the worker may have dropped one since it spoke of it. */
  private void map(int number, int descriptor, long size) {
    drop(number);
    try {
      mapped.put(number, HostBlock.mapped(blocks.openWritable(descriptor, size)));
    } catch (IOException e) {
      unmapped.put(number, e.toString());
    }
  }

  private void drop(int number) {
    unmapped.remove(number);
    HostBlock block = mapped.remove(number);
    if (block != null) {
      settle();
      block.close();
    }
  }

  /** The function of a kernel. */
  long function(int number) {
    Kernels.Kernel kernel = kernels.get(number);
    if (kernel == null) {
      throw new IllegalStateException("a worker launches a kernel that it did not send: " + number);
    }
    return kernel.function();
  }

  /** Asks for a copy from a block of the worker. */
  void copy(long target, int number, long offset, long size) {
    HostBlock block = mapped.get(number);
    if (unmapped.containsKey(number)) {
      throw new IllegalStateException("memory of a worker cannot be mapped: " + unmapped.get(number));
    }
    if (block == null || offset < 0 || size < 0 || offset > block.bytes.capacity() - size) {
      throw new IllegalStateException("a copy names memory that there is not: " + size + " bytes from " + offset + " of block " + number);
    }
    copy(target, block.address() + offset, size);
  }

  private void copy(long target, long source, long size) {
    isCopying = true;
    Driver.check(Driver.copyToDevice(target, source, size), "copying " + size + " bytes to the GPU");
  }

  /** Asks for a copy of all that is left of a command. */
  void copy(long target, Commands commands) throws IOException {
    long at = target;
    while (commands.unread() > 0) {
      ByteBuffer bytes = room();
      if (used == bytes.capacity()) {
        // What was there may be on its way still.
        settle();
      }
      int size = Math.min(bytes.capacity() - used, commands.unread());
      commands.readTo(bytes.clear().position(used).limit(used + size));
      copy(at, room.address() + used, size);
      at += size;
      used = Math.min(bytes.capacity(), (used + size + UNIT - 1) / UNIT * UNIT);
    }
  }

  /** Answers with bytes of the device, piece after piece. */
  void answer(Commands commands, long[] addresses, long[] sizes) throws IOException {
    // They come after all copies to the device, in the order of the stream, so these need not be waited for before the room is used again.
    ByteBuffer bytes = room().clear().position(1);
    int from = 0;
    for (int i = 0; i < addresses.length; i++) {
      long size;
      for (long done = 0; done < sizes[i]; done += size) {
        if (!bytes.hasRemaining()) {
          answer(commands, bytes, from, false);
          bytes.clear().position(1);
          from = 1;
        }
        size = Math.min(sizes[i] - done, bytes.remaining());
        isCopying = true;
        int code = Driver.copyToHost(room.address() + bytes.position(), addresses[i] + done, size);
        Driver.check(code, "copying " + size + " bytes from the GPU");
        bytes.position((int) (bytes.position() + size));
      }
    }
    answer(commands, bytes, from, true);
  }

  private void answer(Commands commands, ByteBuffer bytes, int from, boolean isLast) throws IOException {
    synchronize();
    commands.answer(bytes.flip().position(from), isLast);
  }

  /** Its first byte is that of an answer. */
  private ByteBuffer room() {
    if (room == null) {
      room = HostBlock.of(ROOM, PAGE);
      room.bytes.put(0, (byte) 'O');
      used = UNIT;
    }
    return room.bytes;
  }

  /** Waits for all that the GPU was asked for. */
  void synchronize() {
    Driver.check(Driver.synchronize(), "waiting for the GPU");
    isCopying = false;
    used = UNIT;
  }

  /** Waits until nothing is copied from memory that is about to go, also if the GPU has failed. */
  void settle() {
    if (isCopying) {
      Driver.synchronize();
      isCopying = false;
      used = UNIT;
    }
  }

  /** The worker is gone. What was copied from its memory was waited for by the thread that asked for it. */
  @Override
  public void close() {
    mapped.values().forEach(HostBlock::close);
    mapped.clear();
    if (room != null) {
      room.close();
      room = null;
    }
  }
}
