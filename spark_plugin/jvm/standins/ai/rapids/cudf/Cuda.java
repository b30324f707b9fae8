package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class Cuda {
  public static final Stream DEFAULT_STREAM = new Stream();

  public static CudaMemInfo memGetInfo() throws CudaException {
    return new CudaMemInfo(4L << 30, 8L << 30);
  }

  public static void autoSetDevice() throws CudaException {
    StandIn.HAVE_DEVICE.add(Thread.currentThread().getName());
  }

  public static void deviceSynchronize() {
    if (StandIn.failure != null) {
      throw StandIn.failure;
    }
  }

  public static int getDevice() throws CudaException {
    return 0;
  }

  public static int getComputeCapabilityMajor() throws CudaException {
    return 9;
  }

  public static int getComputeCapabilityMinor() throws CudaException {
    return 0;
  }

  public static boolean isPtdsEnabled() {
    return true;
  }

  /** A stand-in; see {@link StandIn}. */
  public static final class Stream implements AutoCloseable {
    private Stream() {}

    public long getStream() {
      return 2;
    }

    public void sync() {}

    @Override
    public synchronized void close() {
      throw new IllegalStateException("Close called too many times " + this);
    }
  }
}
