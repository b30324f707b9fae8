package kolumn;

import ai.rapids.cudf.Cuda;
import ai.rapids.cudf.Rmm;
import java.util.Map;

/** The GPU of this executor, as RAPIDS has chosen it and set it up. */
final class Device {
  private Device() {}

  /** What a worker has to know of it: its architecture, its multiprocessors, and the bytes that all tasks may take together. */
  static Map<String, Object> described() {
    int[] multiprocessors = new int[1];
    Driver.check(Driver.multiprocessors(multiprocessors), "asking the GPU for its multiprocessors");
    int arch = 10 * Cuda.getComputeCapabilityMajor() + Cuda.getComputeCapabilityMinor();
    // A session of RAPIDS may have no pool.
    long memory = Rmm.getPoolSize() > 0 ? Rmm.getPoolSize() : Cuda.memGetInfo().total;
    return Map.of("arch", arch, "multiprocessors", multiprocessors[0], "memory", memory);
  }
}
