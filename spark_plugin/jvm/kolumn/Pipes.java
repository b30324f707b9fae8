package kolumn;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.ClosedByInterruptException;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;

/**
 * The standard input and output of a worker, which nobody else has. Waits for a pipe cannot be interrupted, so a thread of `Workers` looks
 * at them: if the caller is interrupted, its task is killed or the time for an answer is over, the worker is killed, and the wait ends.
 */
final class Pipes implements ByteChannel {
  private static final int LARGEST = 1 << 30;
  private static final int MOST = 1 << 17;
  private static final int STRAYS = 1 << 16;
  private static final long KILLED_AFTER = TimeUnit.SECONDS.toNanos(2);

  private final Process process;
  private final InputStream in;
  private final OutputStream out;
  private final byte[] small = new byte[1 << 12];
  private byte[] part;
  private long limit;
  private Thread waiting;
  private TaskContext task;
  private long since;
  private End end;

  /** Why a wait was ended. */
  private enum End {
    INTERRUPTED,
    KILLED,
    LATE
  }

  /** A worker that does not answer: another one would not, either. */
  static final class Late extends IOException {
    private static final long serialVersionUID = 1;

    Late(String told) {
      super(told);
    }
  }

  private interface Transfer {
    int run() throws IOException;
  }

  Pipes(Process process) {
    this.process = process;
    in = process.getInputStream();
    out = process.getOutputStream();
    Workers.watch(this);
  }

  /** The most seconds for each answer from now on; 0 for what spark.kolumn.worker.timeoutSeconds says. */
  synchronized void limit(long seconds) {
    limit = seconds;
  }

  /** Kills the worker if its caller has no use for the answer any more. */
  void look() {
    synchronized (this) {
      if (waiting == null || end != null) {
        return;
      }
      long waited = System.nanoTime() - since;
      if (waiting.isInterrupted()) {
        end = End.INTERRUPTED;
      } else if (task != null && task.isInterrupted() && waited > KILLED_AFTER) {
        // A healthy worker gets the time to finish a batch, since another one takes a second to start.
        end = End.KILLED;
      } else if (seconds() > 0 && waited > TimeUnit.SECONDS.toNanos(seconds())) {
        end = End.LATE;
      } else {
        return;
      }
    }
    kill();
  }

  private long seconds() {
    return limit > 0 ? limit : Workers.timeoutSeconds();
  }

  private int waited(Transfer transfer) throws IOException {
    enter();
    int moved;
    try {
      moved = transfer.run();
    } catch (IOException e) {
      // The end of the stream, or that it was closed.
      check();
      throw e;
    } finally {
      leave();
    }
    check();
    return moved;
  }

  private synchronized void enter() throws IOException {
    if (Thread.currentThread().isInterrupted()) {
      end = End.INTERRUPTED;
      kill();
      throw new ClosedByInterruptException();
    }
    since = System.nanoTime();
    task = TaskContext.get();
    waiting = Thread.currentThread();
  }

  private synchronized void leave() {
    waiting = null;
    task = null;
  }

  private synchronized void check() throws IOException {
    if (end == End.INTERRUPTED) {
      throw new ClosedByInterruptException();
    }
    if (end == End.KILLED && TaskContext.get() != null) {
      TaskContext.get().killTaskIfInterrupted();
    }
    if (end == End.LATE) {
      throw new Late(lateness());
    }
  }

  /** What is wrong with a worker that did not answer in time; null of any other. */
  synchronized String lateness() {
    if (end != End.LATE) {
      return null;
    }
    String told = "Kolumn's Python worker " + process.pid() + " did not answer within " + seconds() + " s, so it was killed: perhaps a file"
        + " system hangs.";
    String advice = " If it only needs longer, start the SparkContext with a larger " + Workers.TIMEOUT_SECONDS + ", 0 for any time";
    return told + (limit > 0 ? "" : advice);
  }

  @Override
  public int read(ByteBuffer target) throws IOException {
    int size = Math.min(target.remaining(), MOST);
    if (target.hasArray()) {
      int moved = waited(() -> in.read(target.array(), target.arrayOffset() + target.position(), size));
      target.position(target.position() + Math.max(moved, 0));
      return moved;
    }
    byte[] bytes = part();
    int moved = waited(() -> in.read(bytes, 0, Math.min(size, bytes.length)));
    target.put(bytes, 0, Math.max(moved, 0));
    return moved;
  }

  /** All of it. */
  @Override
  public int write(ByteBuffer source) throws IOException {
    int size = source.remaining();
    while (source.hasRemaining()) {
      int count = Math.min(source.remaining(), MOST);
      byte[] bytes = source.hasArray() ? source.array() : part();
      int from = source.hasArray() ? source.arrayOffset() + source.position() : 0;
      if (source.hasArray()) {
        source.position(source.position() + count);
      } else {
        source.get(bytes, 0, count);
      }
      waited(() -> {
        out.write(bytes, from, count);
        out.flush();
        return count;
      });
    }
    return size;
  }

  private byte[] part() {
    if (part == null) {
      part = new byte[MOST];
    }
    return part;
  }

  /** So many bytes, which are there until more is read. Memory is taken as they come, whatever the worker says of their number. */
  ByteBuffer take(int size) throws IOException {
    if (size < 0 || size > LARGEST) {
      throw new IOException("an answer of " + size + " bytes is none");
    }
    byte[] found = size <= small.length ? small : new byte[Math.min(size, MOST)];
    ByteBuffer target = ByteBuffer.wrap(found, 0, Math.min(size, found.length));
    while (target.position() < size) {
      if (!target.hasRemaining()) {
        found = Arrays.copyOf(found, (int) Math.min(size, 2L * found.length));
        target = ByteBuffer.wrap(found).position(target.position());
      }
      if (read(target) < 0) {
        throw new EOFException("the connection ended");
      }
    }
    return target.flip();
  }

  /** Reads up to the end of some bytes. What comes before them was printed by somebody else, and goes where the worker's stderr goes. */
  void find(byte[] wanted) throws IOException {
    ByteArrayOutputStream strays = new ByteArrayOutputStream();
    byte[] last = new byte[wanted.length];
    try {
      take(last.length).get(last);
      while (!Arrays.equals(last, wanted)) {
        strays.write(last[0]);
        if (strays.size() > STRAYS) {
          throw new IOException("the program prints, and is no worker");
        }
        System.arraycopy(last, 1, last, 0, last.length - 1);
        last[last.length - 1] = take(1).get();
      }
    } finally {
      System.err.write(strays.toByteArray());
    }
  }

  @Override
  public synchronized boolean isOpen() {
    return end == null && process.isAlive();
  }

  private void kill() {
    try {
      // A program that starts the worker and waits for it would leave it alone.
      process.descendants().forEach(ProcessHandle::destroyForcibly);
    } catch (RuntimeException e) {
      // Without a free descriptor nobody can list them.
    } finally {
      process.destroyForcibly();
    }
  }

  @Override
  public void close() {
    Workers.forget(this);
    kill();
    try {
      out.close();
      in.close();
    } catch (IOException e) {
      // It is gone, which is what was wanted.
    }
  }
}
