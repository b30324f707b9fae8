package kolumn;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.Deque;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.spark.SparkEnv;
import org.slf4j.LoggerFactory;

/** The idle workers of this JVM, last used first. Those that nobody needs for a while are ended. */
final class Workers {
  private static final Map<String, Deque<Worker>> IDLE = new ConcurrentHashMap<>();
  private static final Set<Pipes> WATCHED = ConcurrentHashMap.newKeySet();
  private static final String IDLE_SECONDS = "spark.kolumn.worker.idleSeconds";
  static final String TIMEOUT_SECONDS = "spark.kolumn.worker.timeoutSeconds";
  private static final int LOOK_MS = 100;
  private static final int LOOKS_A_SECOND = 10;

  static {
    Thread keeper = new Thread(Workers::keep, "kolumn-workers");
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
      boolean isReady = false;
      try {
        if (found.isAlive()) {
          found.awaitStopped();
          isReady = true;
          return found;
        }
      } catch (ClosedByInterruptException e) {
        throw e;
      } catch (IOException e) {
        // It died in its last task, or hangs there, after that task had all it wanted.
      } finally {
        if (!isReady) {
          found.close();
        }
      }
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
      boolean hasBegun = false;
      try {
        beginning.with(found);
        hasBegun = true;
        return found;
      } catch (ClosedByInterruptException | Pipes.Late e) {
        throw e;
      } catch (IOException e) {
        String told = found.fate();
        if (!found.hasBeenIdle() || Thread.currentThread().isInterrupted()) {
          throw new IOException(told, e);
        }
      } finally {
        if (!hasBegun) {
          found.close();
        }
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

  /** Has somebody look at a worker. */
  static void watch(Pipes one) {
    WATCHED.add(one);
    synchronized (WATCHED) {
      WATCHED.notifyAll();
    }
  }

  static void forget(Pipes one) {
    WATCHED.remove(one);
  }

  /** Seconds that a worker has for an answer; 0 is no limit. */
  static long timeoutSeconds() {
    return seconds(TIMEOUT_SECONDS, 600, 600);
  }

  /** A setting of the SparkContext. What is no number is refused on the driver when a query reads a log. */
  private static long seconds(String name, long otherwise, long withoutSpark) {
    SparkEnv environment = SparkEnv.get();
    String found = environment == null ? String.valueOf(withoutSpark) : environment.conf().get(name, String.valueOf(otherwise));
    return Settings.isSeconds(found) ? Long.parseLong(found) : otherwise;
  }

  private static void keep() {
    try {
      for (int look = 1; true; look++) {
        synchronized (WATCHED) {
          while (WATCHED.isEmpty()) {
            WATCHED.wait();
          }
        }
        Thread.sleep(LOOK_MS);
        try {
          WATCHED.forEach(Pipes::look);
          if (look % LOOKS_A_SECOND == 0) {
            endIdle(seconds(IDLE_SECONDS, 60, 0));
          }
        } catch (RuntimeException e) {
          // Nobody else looks at workers, so this thread goes on.
          LoggerFactory.getLogger(Workers.class).warn("Kolumn's workers could not be looked at", e);
        }
      }
    } catch (InterruptedException e) {
      // The JVM ends.
    }
  }

  private static void endIdle(long seconds) {
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
