package kolumn;

import ai.rapids.cudf.ColumnVector;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.spark.TaskContext;
import scala.Function0;

/**
 * A task's permit to use the GPU, by RAPIDS' semaphore, which allows so many tasks at a time. While a worker reads and plans, other tasks
 * may have it. RAPIDS has no interface for that, so where its semaphore is not found the task keeps its permit.
 */
final class GpuTurn {
  private static final Call RELEASE = Call.of("GpuSemaphore$", "releaseIfNecessary", TaskContext.class);
  private static final Call ACQUIRE = Call.of("GpuSemaphore$", "acquireIfNecessary", TaskContext.class);
  private static final Call WAIT = Call.of("TaskRegistryTracker$", "withRmmPoolWait", Function0.class);

  private boolean isReleased;

  /** Most of RAPIDS' classes are there once for each version of Spark, where its own loader alone finds them. */
  private static ClassLoader loader() throws ReflectiveOperationException {
    ClassLoader above = ColumnVector.class.getClassLoader();
    try {
      Class<?> shims = Class.forName("com.nvidia.spark.rapids.ShimLoader", true, above);
      return (ClassLoader) shims.getMethod("getShimClassLoader").invoke(null);
    } catch (ClassNotFoundException e) {
      return above;
    }
  }

  /** Lets another task use the GPU. This one may have the bytes of a chunk there, and no more. */
  void release() {
    if (RELEASE != null && ACQUIRE != null && !isReleased) {
      RELEASE.with(TaskContext.get());
      isReleased = true;
    }
  }

  /** Waits for the permit if it was released. */
  void acquire() {
    if (isReleased) {
      ACQUIRE.with(TaskContext.get());
      isReleased = false;
    }
  }

  /** What a worker says next. */
  interface Next {
    char get() throws IOException;
  }

  /**
   * Waits for the next command. Without a permit the thread is one of those that wait for others: RAPIDS takes a thread that reads from a
   * pipe for one that goes on, and would not free memory for the rest.
   */
  char await(Next next) throws IOException {
    if (!isReleased || WAIT == null) {
      return next.get();
    }
    Function0<Object> waiting =
        () -> {
          try {
            return next.get();
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        };
    try {
      return (char) WAIT.with(waiting);
    } catch (UncheckedIOException e) {
      throw e.getCause();
    }
  }

  /** A method of one of RAPIDS' objects. */
  private record Call(Object object, Method method) {
    /** Null where there is none. */
    static Call of(String object, String name, Class<?> argument) {
      try {
        Class<?> kind = Class.forName("com.nvidia.spark.rapids." + object, true, loader());
        return new Call(kind.getField("MODULE$").get(null), kind.getMethod(name, argument));
      } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
        return null;
      }
    }

    Object with(Object argument) {
      try {
        return method.invoke(object, argument);
      } catch (InvocationTargetException e) {
        if (e.getCause() instanceof RuntimeException cause) {
          throw cause;
        }
        if (e.getCause() instanceof Error cause) {
          throw cause;
        }
        throw new IllegalStateException(e.getCause());
      } catch (IllegalAccessException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
