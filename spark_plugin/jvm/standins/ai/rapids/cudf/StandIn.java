package ai.rapids.cudf;

import java.lang.reflect.Field;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import sun.misc.Unsafe;

/**
 * What is not in RAPIDS' jar: the other classes here stand for those of the same names there. The connector is compiled with them, and
 * tests run it with them. They do what is asked for at once, in memory of the library that {@code KOLUMN_STANDIN_LIBCUDA} names, which
 * this process can read.
 */
public final class StandIn {
  /** Buffers, slices of buffers, views and columns that nobody has closed. */
  public static final AtomicInteger BUFFERS = new AtomicInteger();

  public static final AtomicInteger VIEWS = new AtomicInteger();
  public static final AtomicInteger COLUMNS = new AtomicInteger();

  /** Threads that have the GPU which RAPIDS uses. */
  public static final Set<String> HAVE_DEVICE = ConcurrentHashMap.newKeySet();

  /** What RAPIDS says of a GPU on which nothing works any more; null: it works. */
  public static volatile RuntimeException failure;

  /** Called before memory is allocated: throws what RAPIDS would. */
  public static volatile Runnable allocating = () -> {};

  static final Unsafe MEMORY;

  static {
    try {
      Field one = Unsafe.class.getDeclaredField("theUnsafe");
      one.setAccessible(true);
      MEMORY = (Unsafe) one.get(null);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
    System.load(System.getenv("KOLUMN_STANDIN_LIBCUDA"));
  }

  private StandIn() {}

  /** Whether bit {@code row} of a bitmap is set; an address of 0 stands for one of ones. */
  static boolean isSet(long bitmap, long row) {
    return bitmap == 0 || (MEMORY.getByte(bitmap + row / 8) >> row % 8 & 1) != 0;
  }

  static int intAt(long address, long item) {
    return MEMORY.getInt(address + 4 * item);
  }

  // Of the library: memory with guards around it, 0 if there is no more. What was written outside of a piece is found when it is freed.
  static native long allocate(long size);

  static native void free(long address, long size);
}
