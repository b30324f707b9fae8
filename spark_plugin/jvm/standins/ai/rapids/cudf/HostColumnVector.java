package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public final class HostColumnVector extends HostColumnVectorCore {
  HostColumnVector(long[] numbers) {
    super(numbers);
  }

  @Override
  public synchronized void close() {
    super.close();
  }
}
