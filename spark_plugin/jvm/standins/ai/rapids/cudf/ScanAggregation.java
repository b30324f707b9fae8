package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public final class ScanAggregation {
  private ScanAggregation() {}

  public static ScanAggregation sum() {
    return new ScanAggregation();
  }
}
