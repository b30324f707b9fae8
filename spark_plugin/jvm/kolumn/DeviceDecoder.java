package kolumn;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedByInterruptException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.TaskContext;

/** Decodes splits on the GPU of this executor: a worker says what is to be done there, and this thread does it. */
final class DeviceDecoder implements AutoCloseable {
  private final List<DeviceTable> tables = new ArrayList<>();
  private final GpuTurn turn = new GpuTurn();

  private DeviceDecoder() {}

  /**
   * A column of lists, one for each split, with a struct for each record. What RAPIDS throws to have an operator try again is thrown on as
   * it is, and nothing is left then.
   *
   * @param counted gets the metrics of each split, when all are decoded
   */
  static ColumnVector decode(String python, boolean isShared, String work, String[] splits, Consumer<JsonNode> counted) {
    Driver.use();
    List<JsonNode> found = new ArrayList<>();
    try (DeviceDecoder decoder = new DeviceDecoder()) {
      // Nothing is needed of the GPU while a worker starts, plans and reads.
      decoder.turn.release();
      int[] ends = new int[splits.length];
      // Without a split the worker tells the types.
      for (int i = 0; i < Math.max(splits.length, 1); i++) {
        found.add(decoder.run(python, isShared, work, splits.length == 0 ? "" : splits[i]));
        long rows = decoder.tables.stream().mapToLong(one -> one.rows).sum();
        if (rows > (splits.length == 0 ? 0 : Integer.MAX_VALUE)) {
          throw new IllegalStateException(
              splits.length + " splits have " + rows + " records, more than a column on a GPU can have: make splits smaller");
        }
        if (splits.length > 0) {
          ends[i] = (int) rows;
        }
      }
      decoder.turn.acquire();
      decoder.leaveEmptyOut();
      ColumnVector column = decoder.column(ends);
      try {
        found.forEach(counted);
        return column;
      } catch (RuntimeException | Error e) {
        column.close();
        throw e;
      }
    }
  }

  /** Adds the tables of a split, and returns its metrics. */
  private JsonNode run(String python, boolean isShared, String work, String split) {
    Map<String, Object> device = Device.described();
    Worker worker;
    try {
      worker = Workers.begin(python, one -> {
        Map<String, Object> question = LogReader.question("decode", isShared && one.isShared(), work, split);
        question.putAll(device);
        one.send(question);
        turn.await(one.commands()::next);
      });
    } catch (IOException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
    JsonNode end;
    try (DeviceCommands commands = new DeviceCommands(worker, turn, tables)) {
      for (char command = worker.commands().current(); commands.perform(command); command = turn.await(worker.commands()::next)) {
        TaskContext task = TaskContext.get();
        if (task != null) {
          task.killTaskIfInterrupted();
        }
      }
      end = commands.end();
    } catch (ClosedByInterruptException e) {
      worker.close();
      throw new UncheckedIOException(e);
    } catch (IOException e) {
      String told = worker.fate();
      worker.close();
      throw new UncheckedIOException(told, e);
    } catch (RuntimeException | Error e) {
      leave(worker);
      throw e;
    }
    // Not before: what the commands leave is the worker's, which another task takes at once.
    Workers.give(worker);
    return end;
  }

  /** Several tables have to be copied, so those without records go, but for one that has the types. */
  private void leaveEmptyOut() {
    for (DeviceTable one : List.copyOf(tables)) {
      if (one.rows == 0 && tables.size() > 1) {
        tables.remove(one);
        one.close();
      }
    }
  }

  private static void leave(Worker worker) {
    try {
      worker.stopDecoding();
      Workers.give(worker);
    } catch (IOException e) {
      worker.close();
    }
  }

  /** The column of all tables; `ends` are the records up to the end of each split. */
  private ColumnVector column(int[] ends) {
    List<DeviceMemoryBuffer> made = new ArrayList<>();
    ColumnVector whole = null;
    try {
      if (tables.size() > 1) {
        whole = ColumnVector.concatenate(tables.stream().map(one -> one.view).toArray(ColumnView[]::new));
        close();
      }
      DeviceMemoryBuffer offsets = ends.length == 0 ? null : offsets(ends, made);
      ColumnView items = whole == null ? tables.get(0).view : whole;
      List<DeviceMemoryBuffer> buffers = whole == null ? tables.get(0).buffers : new ArrayList<>();
      ColumnVector found = new ColumnVector(
          DType.LIST, ends.length, Optional.of(0L), null, null, offsets, buffers, new long[] {items.getNativeView()});
      // Now they are the column's.
      buffers.clear();
      if (whole != null) {
        // A list cannot own a column without a copy of it, so the column goes with the list's offsets, which nobody else knows.
        ColumnVector held = whole;
        offsets.setEventHandler(users -> {
          if (users == 0) {
            held.close();
          }
        });
      }
      return found;
    } catch (RuntimeException | Error e) {
      DeviceTable.closeAll(made);
      if (whole != null) {
        whole.close();
      }
      throw e;
    }
  }

  private static DeviceMemoryBuffer offsets(int[] ends, List<DeviceMemoryBuffer> made) {
    int size = Integer.BYTES * (ends.length + 1);
    ByteBuffer numbers = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder());
    numbers.asIntBuffer().put(1, ends);
    DeviceMemoryBuffer found = DeviceMemoryBuffer.allocate(size);
    made.add(found);
    Driver.check(Driver.copyToDevice(found.getAddress(), MemoryUtil.getByteBufferAddress(numbers), size), "copying offsets to the GPU");
    Driver.check(Driver.synchronize(), "waiting for the GPU");
    return found;
  }

  @Override
  public void close() {
    tables.forEach(DeviceTable::close);
    tables.clear();
  }
}
