package kolumn;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.SparkEnv;

/** The idle workers of this JVM, last used first. Those that nobody needs for a while are ended. */
final class Workers {
  private static final Map<String, Deque<Worker>> IDLE = new ConcurrentHashMap<>();
  private static final String IDLE_SECONDS = "spark.kolumn.worker.idleSeconds";

  static {
    Thread keeper = new Thread(Workers::endIdle, "kolumn-idle-workers");
    keeper.setDaemon(true);
    keeper.start();
  }

  private Workers() {}

  /** An idle worker of a Python, or a new one; with other files added to the session a worker is another. */
  static Worker take(String python) throws IOException {
    Environment environment = Environment.here(python);
    String key = environment.toString();
    Deque<Worker> idle = IDLE.computeIfAbsent(key, any -> new ConcurrentLinkedDeque<>());
    for (Worker found = idle.pollFirst(); found != null; found = idle.pollFirst()) {
      if (found.isAlive()) {
        try {
          found.awaitStopped();
          return found;
        } catch (ClosedByInterruptException e) {
          found.close();
          throw e;
        } catch (IOException e) {
          // It died in its last task, after that task had all it wanted.
        }
      }
      found.close();
    }
    return new Worker(key, python, environment);
  }

  /** The beginning of a task: its question, and what the worker says to it at first. */
  @FunctionalInterface
  interface Beginning {
    void with(Worker worker) throws IOException;
  }

  /** A worker that has begun with a task. Those that have been idle may have died meanwhile: then the next one, and a new one in the end. */
  static Worker begin(String python, Beginning beginning) throws IOException {
    while (true) {
      Worker found = take(python);
      try {
        beginning.with(found);
        return found;
      } catch (IOException e) {
        String told = found.fate();
        found.close();
        if (!found.hasBeenIdle() || Thread.currentThread().isInterrupted()) {
          throw new IOException(told, e);
        }
      } catch (RuntimeException | Error e) {
        found.close();
        throw e;
      }
    }
  }

  static void give(Worker worker) {
    if (worker.isAlive()) {
      worker.beIdle();
      IDLE.get(worker.key).addFirst(worker);
    } else {
      worker.close();
    }
  }

  private static void endIdle() {
    while (true) {
      try {
        Thread.sleep(1000);
      } catch (InterruptedException e) {
        return;
      }
      SparkEnv environment = SparkEnv.get();
      long seconds = environment == null ? 0 : environment.conf().getLong(IDLE_SECONDS, 60);
      for (Deque<Worker> idle : IDLE.values()) {
        for (Worker one : idle) {
          // Who removes it has it.
          if (one.isIdleFor(seconds) && idle.removeFirstOccurrence(one)) {
            one.close();
          }
        }
      }
    }
  }
}
