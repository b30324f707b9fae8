package kolumn;

import ai.rapids.cudf.Cuda;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * CUDA's driver and nvCOMP, as this process has them. Everything is asked for in the context of the calling thread, on its default stream
 * (CU_STREAM_PER_THREAD), and has not happened before {@link #synchronize}. Methods return a CUresult, 0 if all is well, unless said.
 *
 * <p>The library is in this jar and loaded by {@link #use}, not with the class: a driver of Spark without a GPU has this class, too.
 */
final class Driver {
  private static final int INVALID_VALUE = 1;
  private static final int OUT_OF_MEMORY = 2;

  private static boolean loaded;

  private Driver() {}

  /** Makes the other methods usable on this thread; throws an IllegalStateException where there is no driver or no library for it. */
  static synchronized void use() {
    if (!loaded) {
      load();
      loaded = true;
    }
    check(open(), "opening CUDA's driver", null);
    check(here(), "using a GPU", null);
  }

  /** Gives this thread the GPU that RAPIDS uses: there may be several, and a thread without one would begin with the first. */
  static int here() {
    Cuda.autoSetDevice();
    return attach();
  }

  /** After most errors nothing works on this GPU any more: what RAPIDS says of that is the cause, by which it ends the executor. */
  static void check(int code, String what) {
    RuntimeException cause = null;
    if (code != 0 && code != INVALID_VALUE && code != OUT_OF_MEMORY) {
      try {
        Cuda.deviceSynchronize();
      } catch (RuntimeException e) {
        cause = e;
      }
    }
    check(code, what, cause);
  }

  private static void check(int code, String what, RuntimeException cause) {
    if (code != 0) {
      throw new IllegalStateException(what + ": " + explain(code), cause);
    }
  }

  private static void load() {
    String name = "native/" + System.getProperty("os.arch") + "/libkolumn.so";
    try (InputStream packed = System.getProperty("os.name").equals("Linux") ? Driver.class.getResourceAsStream(name) : null) {
      if (packed == null) {
        throw new IllegalStateException(
            "decoding on a GPU in an executor needs Linux on amd64 or aarch64, and this is "
                + System.getProperty("os.name") + " on " + System.getProperty("os.arch"));
      }
      // A file that this user alone can read, whose name nobody needs once it is loaded.
      Path file = Files.createTempFile("kolumn", ".so");
      try {
        Files.write(file, packed.readAllBytes());
        System.load(file.toString());
      } finally {
        Files.deleteIfExists(file);
      }
    } catch (IOException | UnsatisfiedLinkError e) {
      throw new IllegalStateException(
          "the library of the jar could not be loaded from " + System.getProperty("java.io.tmpdir")
              + " (executors may write there and load libraries from there, or get another -Djava.io.tmpdir): " + e, e);
    }
  }

  /** Finds libcuda.so.1 and its functions, unless they were found before; -1: they are not there. */
  static synchronized native int open();

  /** Makes a context current if none is: the primary one of the first device, as CUDA's runtime does. */
  static synchronized native int attach();

  /** Code for the device: a cubin or PTX. */
  static native int loadModule(byte[] image, long[] module);

  static native int getFunction(long module, String name, long[] function);

  /** Runs a kernel: {@code grid} blocks of {@code block} threads. Each of its parameters is 8 bytes long. */
  static native int launch(long function, int grid, int block, long[] args);

  /** Host memory that is not locked has been read when this returns. */
  static native int copyToDevice(long target, long source, long size);

  static native int copyToHost(long target, long source, long size);

  static native int copyOnDevice(long target, long source, long size);

  static native int setZero(long target, long size);

  static native int synchronize();

  /** Page-locks memory of the host for all contexts, so that copies need not stop over. */
  static native int lock(long address, long size);

  static native int unlock(long address);

  static native int multiprocessors(int[] found);

  static native String explain(int code);

  /** Names the file of nvCOMP, where the linker would not find it; 0 if it is there, or another one was before. */
  static synchronized native int useCodecs(String path);

  /** Bytes that nvCOMP needs for {@code count} blocks; -1 - its status if that went wrong, Long.MIN_VALUE where there is no nvCOMP. */
  static native long temporaryBytes(int kind, long count, long largest, long total);

  /** nvCOMP decompresses {@code count} blocks; all arrays are on the device. Returns its status, -1 where there is no nvCOMP. */
  static native int inflate(
      int kind, long sources, long sizes, long rooms, long outSizes, long count, long temporary, long temporaryBytes, long targets,
      long statuses);
}
