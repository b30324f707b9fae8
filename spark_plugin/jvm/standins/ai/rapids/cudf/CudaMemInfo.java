package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class CudaMemInfo {
  public final long free;
  public final long total;

  CudaMemInfo(long free, long total) {
    this.free = free;
    this.total = total;
  }
}
