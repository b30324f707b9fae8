package kolumn;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.security.SecureRandom;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * A Python process that plans or decodes for one caller at a time; what the two say to each other is in Python's
 * `connector/worker.py`. It ends when its standard input does, hence never outlives the JVM.
 */
final class Worker implements AutoCloseable {
  private static final ObjectMapper JSON = JsonMapper.builder(answers()).build();
  private static final String MODULE = "kolumn.spark_plugin.connector.worker";
  private static final String KILLED = " (killed: perhaps its machine or container ran out of memory)";
  private static final int START_SECONDS = 120;
  private static final int STOP_SECONDS = 10;
  private static final int SECRET = 16;
  private static final int LARGEST = 1 << 30;

  final String key;
  final Pipes channel;
  final BufferAllocator allocator;
  private final String python;
  private final Process process;
  private final Blocks blocks;
  private final boolean isShared;
  private final Commands commands;
  private final DeviceState device;
  private boolean isStopping;
  private boolean isDecoding;
  private boolean hasBeenIdle;
  private volatile long idleSince;

  Worker(String key, String python, Environment environment) throws IOException {
    this.key = key;
    this.python = python;
    // Without -P the folder that the task is in would come first on sys.path.
    ProcessBuilder builder = new ProcessBuilder(python, "-P", "-m", MODULE);
    environment.addTo(builder.environment());
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    process = builder.start();
    channel = new Pipes(process);
    blocks = new Blocks(process.pid());
    allocator = blocks.allocator();
    commands = new Commands(channel);
    device = new DeviceState(blocks);
    boolean isGreeted = false;
    try {
      isShared = greet();
      isGreeted = true;
    } catch (ClosedByInterruptException e) {
      throw e;
    } catch (IOException e) {
      throw new IOException("Kolumn's worker, " + python + " -m " + MODULE + ", " + startOf(e) + " Its stderr is in this process's log", e);
    } finally {
      if (!isGreeted) {
        close();
      }
    }
  }

  /** A split of very many segments is a long text; Jackson has a limit for what comes from elsewhere. */
  private static JsonFactory answers() {
    StreamReadConstraints limits = StreamReadConstraints.builder().maxStringLength(LARGEST).build();
    return JsonFactory.builder().streamReadConstraints(limits).build();
  }

  /** Sends a secret, which the worker says and writes into a block. Whether this JVM can map its blocks, and not another process's. */
  private boolean greet() throws IOException {
    byte[] secret = new byte[SECRET];
    new SecureRandom().nextBytes(secret);
    channel.limit(START_SECONDS);
    channel.write(ByteBuffer.wrap(secret));
    channel.find(secret);
    int probe = channel.take(4).getInt();
    channel.limit(0);
    return probe >= 0 && blocks.canOpen(probe, secret);
  }

  /** How a start failed. */
  private String startOf(IOException e) {
    if (e instanceof Pipes.Late) {
      return "did not start within " + START_SECONDS + " s.";
    }
    if (e instanceof EOFException) {
      await(STOP_SECONDS);
    }
    if (process.isAlive()) {
      return "does not say what a worker says: is it a Python?";
    }
    String why = isKilled() ? KILLED + "." : ": are Kolumn, pyspark and pandas installed for this Python?";
    return "ended with exit code " + process.exitValue() + " at its start" + why;
  }

  boolean isShared() {
    return isShared;
  }

  boolean isAlive() {
    return channel.isOpen();
  }

  /** Whether it was there before its caller asked for one: it may have died meanwhile, which says nothing about the question. */
  boolean hasBeenIdle() {
    return hasBeenIdle;
  }

  void beIdle() {
    hasBeenIdle = true;
    idleSince = System.nanoTime();
  }

  boolean isIdleFor(long seconds) {
    return System.nanoTime() - idleSince > TimeUnit.SECONDS.toNanos(seconds);
  }

  private boolean isKilled() {
    return !process.isAlive() && process.exitValue() == 137;
  }

  /** How the worker ended, for an error. */
  String fate() {
    if (channel.lateness() != null) {
      return channel.lateness();
    }
    await(1);
    String pid = "Kolumn's Python worker " + process.pid();
    String end = process.isAlive() ? " closed its connection" : " ended with exit code " + process.exitValue();
    return pid + end + (isKilled() ? KILLED : "") + "; its stderr is in this process's log";
  }

  private void await(long seconds) {
    try {
      process.waitFor(seconds, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  void send(Object question) throws IOException {
    byte[] text = JSON.writeValueAsBytes(question);
    channel.write(ByteBuffer.allocate(4 + text.length).putInt(text.length).put(text).flip());
  }

  /** A command, and the batches that nobody in this JVM refers to any more. */
  void send(char command) throws IOException {
    List<Integer> gone = blocks.released();
    ByteBuffer frame = ByteBuffer.allocate(5 + 4 * gone.size()).put((byte) command).putInt(gone.size());
    gone.forEach(frame::putInt);
    channel.write(frame.flip());
  }

  /** Ends a read before its end; the answer is awaited when the worker is used again. */
  void stop() throws IOException {
    send('S');
    isStopping = true;
  }

  /** As `stop`, of decoding on a device: the worker hears of it where it waits for an answer, now or later. */
  void stopDecoding() throws IOException {
    isStopping = commands.stop();
    isDecoding = true;
  }

  /** The caller can have another worker, so it does not wait for long. */
  void awaitStopped() throws IOException {
    channel.limit(STOP_SECONDS);
    if (isStopping && isDecoding) {
      awaitDecoded();
    } else if (isStopping) {
      status();
      json();
    }
    channel.limit(0);
    isStopping = false;
    isDecoding = false;
  }

  /** What the worker tells of its memory and of kernels holds for the next decoding, too. */
  private void awaitDecoded() throws IOException {
    for (char found = commands.next(); !Commands.isEnd(found); found = commands.next()) {
      if (Commands.isAnswered(found)) {
        commands.answerStop();
      } else {
        try {
          device.note(found, commands);
        } catch (RuntimeException e) {
          throw new IOException("a worker says what makes no sense", e);
        }
      }
    }
    commands.rest();
  }

  /** What it says while it decodes on a device. */
  Commands commands() {
    return commands;
  }

  /** What it and this JVM know from one decoding on a device to the next. */
  DeviceState device() {
    return device;
  }

  static JsonNode parsed(ByteBuffer text) throws IOException {
    byte[] bytes = new byte[text.remaining()];
    text.get(bytes);
    return JSON.readTree(bytes);
  }

  /** A status of one character. */
  char status() throws IOException {
    return (char) channel.take(1).get();
  }

  JsonNode json() throws IOException {
    return parsed(channel.take(channel.take(4).getInt()));
  }

  /** A batch whose buffers lie in the worker's memory. */
  ArrowRecordBatch described() throws IOException {
    return blocks.described(channel.take(channel.take(4).getInt()));
  }

  @Override
  public void close() {
    channel.close();
    device.close();
    blocks.close();
  }
}
