package kolumn;

import ai.rapids.cudf.BaseDeviceMemoryBuffer;
import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.StandIn;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.nvidia.spark.rapids.GpuSemaphore$;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;

/** Calls DeviceDecoder for tests: reads a JSON with a call from each line, and writes one with what came of it. */
public final class DecodeCalls {
  private static final ObjectMapper JSON = new ObjectMapper();

  private DecodeCalls() {}

  /** Stands for what RAPIDS throws to have an operator try again. */
  private static final class GpuRetryOOM extends RuntimeException {}

  public static void main(String[] args) throws Exception {
    // Workers that are idle end with the environment of Spark, of which nothing but the configuration is needed here.
    Constructor<?> environment = SparkEnv.class.getConstructors()[0];
    Object[] parts = new Object[environment.getParameterCount()];
    parts[parts.length - 1] = new SparkConf(false).set("spark.kolumn.worker.idleSeconds", "60");
    SparkEnv.set((SparkEnv) environment.newInstance(parts));
    // The tests' nvCOMP, before a worker names that of its environment.
    Driver.use();
    Driver.useCodecs("libnvcomp.so.5");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(JSON.writeValueAsString(answered(JSON.readTree(line))));
      System.out.flush();
    }
  }

  private static ObjectNode answered(JsonNode call) throws Exception {
    ObjectNode found = JSON.createObjectNode();
    if (call.has("conf")) {
      JsonNode given = call.get("conf");
      given.fieldNames().forEachRemaining(name -> SparkEnv.get().conf().set("spark.kolumn.worker." + name, given.get(name).asText()));
      return found.putPOJO("haveDevice", List.copyOf(StandIn.HAVE_DEVICE));
    }
    StandIn.failure = call.has("fatal") ? new IllegalStateException(call.get("fatal").asText()) : null;
    AtomicInteger allocations = new AtomicInteger();
    int failing = call.path("failAllocation").asInt(-1);
    RuntimeException retry = new GpuRetryOOM();
    StandIn.allocating = () -> {
      if (allocations.getAndIncrement() == failing) {
        throw retry;
      }
    };
    TaskContextImpl task = TaskContext$.MODULE$.empty();
    List<Thread> threads = new ArrayList<>();
    List<ObjectNode> others = new ArrayList<>();
    for (int i = 0; i < call.path("threads").asInt(1); i++) {
      ObjectNode one = i == 0 ? found : JSON.createObjectNode();
      others.add(one);
      threads.add(new Thread(() -> {
        TaskContext$.MODULE$.setTaskContext(task);
        call(call, one);
      }));
    }
    threads.forEach(Thread::start);
    if (call.has("killMs")) {
      Thread.sleep(call.get("killMs").asLong());
      task.markInterrupted("nobody waits for it");
    }
    if (call.has("interruptMs")) {
      Thread.sleep(call.get("interruptMs").asLong());
      threads.forEach(Thread::interrupt);
    }
    for (Thread thread : threads) {
      thread.join();
    }
    found.putPOJO("others", others.subList(1, others.size()));
    found.putPOJO("turns", List.copyOf(GpuSemaphore$.MODULE$.asked));
    GpuSemaphore$.MODULE$.asked.clear();
    found.put("waits", GpuSemaphore$.MODULE$.waits.getAndSet(0));
    found.put("allocations", allocations.get());
    found.putPOJO("live", new int[] {StandIn.BUFFERS.get(), StandIn.VIEWS.get(), StandIn.COLUMNS.get()});
    return found;
  }

  private static void call(JsonNode call, ObjectNode found) {
    List<String> splits = new ArrayList<>();
    call.get("splits").forEach(one -> splits.add(one.asText()));
    List<JsonNode> metrics = new ArrayList<>();
    String python = call.get("python").asText();
    String work = call.get("work").asText();
    boolean isShared = call.get("shared").asBoolean();
    try (ColumnVector column = DeviceDecoder.decode(python, isShared, work, splits.toArray(new String[0]), metrics::add)) {
      found.set("column", described(column));
    } catch (Throwable e) {
      found.put("error", e.getClass().getName() + ": " + e.getMessage());
      for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
        found.withArray("causes").add(cause.toString());
      }
      found.put("isRetry", e instanceof GpuRetryOOM);
    }
    found.putPOJO("metrics", metrics);
  }

  /** By what RAPIDS' classes tell of a column, and with copies from the device. */
  private static ObjectNode described(ColumnView column) {
    ObjectNode found = JSON.createObjectNode();
    found.put("type", column.getType().toString());
    found.put("rows", column.getRowCount());
    found.put("nulls", column.getNullCount());
    found.put("data", column.getType().isNestedType() ? "" : bytes(column.getData()));
    found.put("valid", bytes(column.getValid()));
    found.put("offsets", bytes(column.getOffsets()));
    for (int i = 0; i < column.getNumChildren(); i++) {
      try (ColumnView child = column.getChildColumnView(i)) {
        found.withArray("children").add(described(child));
      }
    }
    return found;
  }

  private static String bytes(BaseDeviceMemoryBuffer memory) {
    if (memory == null || memory.getLength() == 0) {
      return "";
    }
    ByteBuffer target = ByteBuffer.allocateDirect((int) memory.getLength());
    Driver.check(Driver.copyToHost(MemoryUtil.getByteBufferAddress(target), memory.getAddress(), memory.getLength()), "copying");
    Driver.check(Driver.synchronize(), "waiting");
    byte[] found = new byte[target.capacity()];
    target.get(found);
    return HexFormat.of().formatHex(found);
  }
}
