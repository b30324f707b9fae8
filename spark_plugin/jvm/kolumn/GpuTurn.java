package kolumn;

import ai.rapids.cudf.ColumnVector;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.spark.TaskContext;

/**
 * A task's permit to use the GPU, by RAPIDS' semaphore, which allows so many tasks at a time. While a worker reads and plans, other tasks
 * may have it. RAPIDS has no interface for that, so where its semaphore is not found the task keeps its permit.
 */
final class GpuTurn {
  private static final Object SEMAPHORE;
  private static final Method RELEASE;
  private static final Method ACQUIRE;

  static {
    Object semaphore = null;
    Method release = null;
    Method acquire = null;
    try {
      Class<?> kind = Class.forName("com.nvidia.spark.rapids.GpuSemaphore$", true, loader());
      semaphore = kind.getField("MODULE$").get(null);
      release = kind.getMethod("releaseIfNecessary", TaskContext.class);
      acquire = kind.getMethod("acquireIfNecessary", TaskContext.class);
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      semaphore = null;
    }
    SEMAPHORE = semaphore;
    RELEASE = release;
    ACQUIRE = acquire;
  }

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
    if (SEMAPHORE != null && !isReleased) {
      call(RELEASE);
      isReleased = true;
    }
  }

  /** Waits for the permit if it was released. */
  void acquire() {
    if (isReleased) {
      call(ACQUIRE);
      isReleased = false;
    }
  }

  private static void call(Method method) {
    try {
      method.invoke(SEMAPHORE, TaskContext.get());
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
