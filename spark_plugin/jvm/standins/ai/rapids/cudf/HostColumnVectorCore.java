package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class HostColumnVectorCore implements AutoCloseable {
  private final long[] numbers;

  HostColumnVectorCore(long[] numbers) {
    this.numbers = numbers;
  }

  public final long getLong(long index) {
    return numbers[Math.toIntExact(index)];
  }

  @Override
  public synchronized void close() {}
}
