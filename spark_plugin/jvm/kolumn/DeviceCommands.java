package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;

/**
 * Does on the GPU what a worker says while it decodes a split, in the order of its commands, on this thread's stream. What they are is
 * written once, in Python's `kernels/machine/executor.py`.
 */
final class DeviceCommands implements AutoCloseable {
  private final Commands commands;
  private final DeviceState state;
  private final GpuTurn turn;
  private final List<DeviceTable> tables;
  private final Allocations memory = new Allocations();
  private boolean hasTable;
  private JsonNode end;

  /** Tables are added to `tables`, and are the caller's to close. */
  DeviceCommands(Worker worker, GpuTurn turn, List<DeviceTable> tables) {
    commands = worker.commands();
    state = worker.device();
    this.turn = turn;
    this.tables = tables;
  }

  /** Does a command. Whether more will come. */
  boolean perform(char command) throws IOException {
    if (state.note(command, commands)) {
      return true;
    }
    if (command == 'W') {
      turn.release();
      return true;
    }
    if ("FEX".indexOf(command) < 0) {
      turn.acquire();
    }
    switch (command) {
      case 'U' -> {
        long target = commands.part(Long.BYTES).getLong();
        memory.check(target, commands.unread());
        state.copy(target, commands);
      }
      case 'E', 'X' -> end(command == 'E');
      default -> perform(command, commands.rest());
    }
    return end == null;
  }

  private void perform(char command, ByteBuffer text) throws IOException {
    switch (command) {
      case 'A' -> answer(memory.add(text.getLong(), text.get() != 0));
      case 'F' -> memory.free(text.getLong());
      case 'C' -> {
        long target = text.getLong();
        int block = text.getInt();
        long offset = text.getLong();
        long size = text.getLong();
        memory.check(target, size);
        state.copy(target, block, offset, size);
      }
      case 'G' -> download(text);
      case 'L' -> launch(text);
      case 'R' -> memory.sum(text.getLong(), text.getLong(), text.getInt());
      case 'Y' -> {
        state.synchronize();
        commands.answer(ByteBuffer.wrap(new byte[] {'O'}));
      }
      case 'T' -> answer(Driver.temporaryBytes(text.getInt(), text.getLong(), text.getLong(), text.getLong()));
      case 'I' -> decompress(text);
      case 'B' -> {
        tables.add(DeviceTable.of(text, memory));
        hasTable = true;
      }
      default -> throw new IllegalStateException("a worker says what is no command: " + command);
    }
  }

  private void download(ByteBuffer text) throws IOException {
    int count = text.getInt();
    if (count < 0 || count > text.remaining() / (2 * Long.BYTES)) {
      throw new IllegalStateException("a worker asks for " + count + " pieces of memory and names " + text.remaining() / (2 * Long.BYTES));
    }
    long[] addresses = new long[count];
    long[] sizes = new long[count];
    for (int i = 0; i < count; i++) {
      addresses[i] = text.getLong();
      sizes[i] = text.getLong();
      if (sizes[i] != 0) {
        memory.check(addresses[i], sizes[i]);
      }
    }
    state.answer(commands, addresses, sizes);
  }

  private void launch(ByteBuffer text) {
    long function = state.function(text.getInt());
    int grid = text.getInt();
    int block = text.getInt();
    long[] arguments = new long[text.remaining() / Long.BYTES];
    text.asLongBuffer().get(arguments);
    Driver.check(Driver.launch(function, grid, block, arguments), "launching " + grid + " blocks of " + block + " threads");
  }

  private void decompress(ByteBuffer text) throws IOException {
    int kind = text.getInt();
    long count = text.getLong();
    long[] of = new long[8];
    text.asLongBuffer().get(of);
    int status = Driver.inflate(kind, of[0], of[1], of[2], of[3], count, of[4], of[5], of[6], of[7]);
    commands.answer(ByteBuffer.allocate(1 + Integer.BYTES).put((byte) 'O').putInt(status).flip());
  }

  private void answer(long found) throws IOException {
    commands.answer(ByteBuffer.allocate(1 + Long.BYTES).put((byte) 'O').putLong(found).flip());
  }

  private void end(boolean isFine) throws IOException {
    JsonNode said = Worker.parsed(commands.rest());
    if (!isFine) {
      throw Errors.ofTask(said.get("error").asText());
    }
    if (!hasTable) {
      throw new IllegalStateException("a worker ends without a table");
    }
    // Others use the columns, and the worker its memory, when the GPU is done with them.
    state.synchronize();
    end = said;
  }

  /** What the worker counted, at its end. */
  JsonNode end() {
    return end;
  }

  /** Frees what no column lies in; whatever has failed, nothing is copied from or to memory of the host any more. */
  @Override
  public void close() {
    state.settle();
    memory.close();
  }
}
