package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class Rmm {
  public static boolean isInitialized() throws RmmException {
    return true;
  }

  public static long getPoolSize() {
    return Cuda.memGetInfo().total;
  }

  public static DeviceMemoryBuffer alloc(long size) {
    return alloc(size, null);
  }

  public static DeviceMemoryBuffer alloc(long size, Cuda.Stream stream) {
    if (size == 0) {
      return new DeviceMemoryBuffer(0, 0, () -> {});
    }
    StandIn.allocating.run();
    long address = StandIn.allocate(size);
    if (address == 0) {
      throw new OutOfMemoryError("Could not allocate native memory: std::bad_alloc: out_of_memory: RMM failure: " + size + " bytes");
    }
    return new DeviceMemoryBuffer(address, size, () -> StandIn.free(address, size));
  }
}
