package kolumn;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
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
  private static final int LARGEST = 1 << 30;

  final String key;
  final SocketChannel channel;
  final BufferAllocator allocator = new RootAllocator();
  private final String python;
  private final Process process;
  private final Blocks blocks;
  private final boolean isShared;
  private final ByteBuffer small = ByteBuffer.allocateDirect(1 << 12);
  private final Commands commands;
  private final DeviceState device;
  private boolean isStopping;
  private boolean isDecoding;
  private boolean hasBeenIdle;
  private volatile long idleSince;

  Worker(String key, String python, Environment environment) throws IOException {
    this.key = key;
    this.python = python;
    // Nobody else can enter the folder, and the socket is gone once the worker has connected.
    Path folder = Files.createTempDirectory("kolumn");
    Path path = folder.resolve("s");
    try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
      server.bind(UnixDomainSocketAddress.of(path));
      server.configureBlocking(false);
      // Without -P the folder that the task is in would come first on sys.path.
      ProcessBuilder builder = new ProcessBuilder(python, "-P", "-m", MODULE, path.toString());
      environment.addTo(builder.environment());
      builder.redirectOutput(ProcessBuilder.Redirect.INHERIT).redirectError(ProcessBuilder.Redirect.INHERIT);
      process = builder.start();
      channel = accept(server);
    } finally {
      Files.deleteIfExists(path);
      Files.deleteIfExists(folder);
    }
    blocks = new Blocks(process.pid(), allocator);
    commands = new Commands(channel);
    device = new DeviceState(blocks);
    isShared = canShare();
  }

  /** A split of very many segments is a long text; Jackson has a limit for what comes from elsewhere. */
  private static JsonFactory answers() {
    StreamReadConstraints limits = StreamReadConstraints.builder().maxStringLength(LARGEST).build();
    return JsonFactory.builder().streamReadConstraints(limits).build();
  }

  private boolean canShare() throws IOException {
    try {
      channel.configureBlocking(true);
      int probe = read(4).getInt();
      return probe >= 0 && blocks.canOpen(probe);
    } catch (IOException e) {
      String told = fate();
      close();
      throw e instanceof ClosedByInterruptException ? e : new IOException(told, e);
    }
  }

  private SocketChannel accept(ServerSocketChannel server) throws IOException {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
    String why = "did not start within " + START_SECONDS + " s.";
    try {
      while (System.nanoTime() < until) {
        SocketChannel found = server.accept();
        if (found != null) {
          return found;
        }
        if (process.waitFor(2, TimeUnit.MILLISECONDS)) {
          why = "ended with exit code " + process.exitValue() + " at its start";
          why += isKilled() ? KILLED + "." : ": is kolumn[spark] installed for this Python?";
          break;
        }
      }
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while Kolumn's worker started");
    } catch (IOException e) {
      process.destroyForcibly();
      throw e;
    }
    process.destroyForcibly();
    throw new IOException("Kolumn's worker, " + python + " -m " + MODULE + ", " + why + " Its stderr is in this process's log");
  }

  boolean isShared() {
    return isShared;
  }

  boolean isAlive() {
    return process.isAlive() && channel.isOpen();
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
    String pid = "Kolumn's Python worker " + process.pid();
    try {
      process.waitFor(1, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    String end = process.isAlive() ? " closed its connection" : " ended with exit code " + process.exitValue();
    return pid + end + (isKilled() ? KILLED : "") + "; its stderr is in this process's log";
  }

  void send(Object question) throws IOException {
    byte[] text = JSON.writeValueAsBytes(question);
    write(ByteBuffer.allocate(4 + text.length).putInt(text.length).put(text));
  }

  /** A command, and the batches that nobody in this JVM refers to any more. */
  void send(char command) throws IOException {
    List<Integer> gone = blocks.released();
    ByteBuffer frame = ByteBuffer.allocate(5 + 4 * gone.size()).put((byte) command).putInt(gone.size());
    gone.forEach(frame::putInt);
    write(frame);
  }

  private void write(ByteBuffer frame) throws IOException {
    frame.flip();
    while (frame.hasRemaining()) {
      channel.write(frame);
    }
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

  void awaitStopped() throws IOException {
    if (isStopping && isDecoding) {
      awaitDecoded();
    } else if (isStopping) {
      status();
      json();
    }
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

  private ByteBuffer read(int size) throws IOException {
    if (size < 0 || size > LARGEST) {
      throw new IOException("an answer of " + size + " bytes is none");
    }
    ByteBuffer target = size <= small.capacity() ? small.clear().limit(size) : ByteBuffer.allocate(size);
    while (target.hasRemaining()) {
      if (channel.read(target) < 0) {
        throw new EOFException("the connection ended");
      }
    }
    return target.flip();
  }

  /** A status of one character. */
  char status() throws IOException {
    return (char) read(1).get();
  }

  JsonNode json() throws IOException {
    return parsed(read(read(4).getInt()));
  }

  /** A batch whose buffers lie in the worker's memory. */
  ArrowRecordBatch described() throws IOException {
    return blocks.described(read(read(4).getInt()));
  }

  @Override
  public void close() {
    process.destroyForcibly();
    try {
      channel.close();
      process.getOutputStream().close();
    } catch (IOException e) {
      // It is gone, which is what was wanted.
    }
    device.close();
    blocks.close();
  }
}
